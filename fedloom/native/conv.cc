// 3x3 convolution, bias and relu, with or without 2x2 max-pooling, in one pass, and its gradient.
//
// Winograd's method as in fedloom/models/winograd.py, with the same points. There every step writes whole arrays to
// memory; here a block of tiles is transformed, multiplied and transformed back while it stays in the L2 cache.

#include "common.h"

constexpr int BLOCK = 24;  // tiles at once

// The transforms along one axis, from x[i s] to y[i t]. The points are 0, +-P, +-Q and infinity.

constexpr float P = 0.75f, Q = 1.5f, P2 = P * P, Q2 = Q * Q, S = P2 + Q2, R = P2 * Q2;
constexpr float WP = 1 / (2 * P2 * (P2 - Q2)), WQ = 1 / (2 * Q2 * (Q2 - P2));
static const float G[6][3] = {{1 / R, 0, 0},           {WP, P * WP, P2 * WP},   {WP, -P * WP, P2 * WP},
                              {WQ, Q * WQ, Q2 * WQ},   {WQ, -Q * WQ, Q2 * WQ},  {0, 0, 1}};

static inline void to_points(const Vector* x, int s, Vector* y, int t) {  // B x
  Vector even_p = x[4 * s] - Q2 * x[2 * s], odd_p = P * (x[3 * s] - Q2 * x[s]);
  Vector even_q = x[4 * s] - P2 * x[2 * s], odd_q = Q * (x[3 * s] - P2 * x[s]);
  y[0] = R * x[0] - S * x[2 * s] + x[4 * s];
  y[t] = even_p + odd_p, y[2 * t] = even_p - odd_p, y[3 * t] = even_q + odd_q, y[4 * t] = even_q - odd_q;
  y[5 * t] = R * x[s] - S * x[3 * s] + x[5 * s];
}

static inline void to_points_transposed(const Vector* y, int s, Vector* x, int t) {  // B^T y
  Vector sum_p = y[s] + y[2 * s], odd_p = y[s] - y[2 * s], sum_q = y[3 * s] + y[4 * s], odd_q = y[3 * s] - y[4 * s];
  x[0] = R * y[0], x[t] = R * y[5 * s] - P * Q2 * odd_p - Q * P2 * odd_q, x[2 * t] = -S * y[0] - Q2 * sum_p - P2 * sum_q;
  x[3 * t] = P * odd_p + Q * odd_q - S * y[5 * s], x[4 * t] = y[0] + sum_p + sum_q, x[5 * t] = y[5 * s];
}

static inline void from_points(const Vector* m, int s, Vector* y, int t) {  // A m
  Vector sum_p = m[s] + m[2 * s], odd_p = m[s] - m[2 * s], sum_q = m[3 * s] + m[4 * s], odd_q = m[3 * s] - m[4 * s];
  y[0] = m[0] + sum_p + sum_q, y[t] = P * odd_p + Q * odd_q, y[2 * t] = P2 * sum_p + Q2 * sum_q;
  y[3 * t] = P * P2 * odd_p + Q * Q2 * odd_q + m[5 * s];
}

static inline void from_points_transposed(const Vector* y, int s, Vector* m, int t) {  // A^T y
  Vector even_p = y[0] + P2 * y[2 * s], odd_p = P * (y[s] + P2 * y[3 * s]);
  Vector even_q = y[0] + Q2 * y[2 * s], odd_q = Q * (y[s] + Q2 * y[3 * s]);
  m[0] = y[0], m[t] = even_p + odd_p, m[2 * t] = even_p - odd_p, m[3 * t] = even_q + odd_q, m[4 * t] = even_q - odd_q;
  m[5 * t] = y[3 * s];
}

// One convolution: images [n, h, w, c], padded by `top` and `left`; outputs [n, oh, ow, o], after pooling if any.

struct Shape {
  long n, h, w, c, o, top, left, oh, ow;
  bool pool;
  long side() const { return pool ? 2 : 4; }  // of a tile's outputs
  long down() const { return (oh + side() - 1) / side(); }
  long across() const { return (ow + side() - 1) / side(); }
  long tiles() const { return n * down() * across(); }
};

struct Tile {
  long image, row, column;  // counted in tiles
  Tile(const Shape& s, long i) : image(i / (s.down() * s.across())), row(i / s.across() % s.down()), column(i % s.across()) {}
};

template <class Number>
static void inputs_of(const Shape& s, Tile at, Number* x, Number* outside, Number** cells) {
  for (long i = 0; i < 6; i++)
    for (long j = 0; j < 6; j++) {
      long r = at.row * 4 + i - s.top, q = at.column * 4 + j - s.left;
      bool inside = r >= 0 && r < s.h && q >= 0 && q < s.w;
      cells[i * 6 + j] = inside ? x + ((at.image * s.h + r) * s.w + q) * s.c : outside;
    }
}

// Where output (i, j) of a tile begins, or -1 if it lies outside.
static inline long output_of(const Shape& s, Tile at, long i, long j) {
  long r = at.row * s.side() + i, q = at.column * s.side() + j;
  return r < s.oh && q < s.ow ? ((at.image * s.oh + r) * s.ow + q) * s.o : -1;
}

static void kernel_to_points(const Shape& s, const float* w, float* u, bool transposed) {  // [36, c, o] or [36, o, c]
  long n = s.c * s.o;
  for (int point = 0; point < 36; point++, u += n) {
    float g[9];
    for (int k = 0; k < 9; k++) g[k] = G[point / 6][k / 3] * G[point % 6][k % 3];
    auto value = [&](long e) {
      float sum = 0;
      for (int k = 0; k < 9; k++) sum += g[k] * w[k * n + e];
      return sum;
    };
    if (!transposed)
      for (long e = 0; e < n; e++) u[e] = value(e);
    else
      for (long o = 0; o < s.o; o++)
        for (long c = 0; c < s.c; c++) u[o * s.c + c] = value(c * s.o + o);
  }
}

static void images_to_points(const Shape& s, const float* x, const float* zeros, long first, long count, float* v) {
  for (long t = 0; t < count; t++) {
    const float* cells[36];
    inputs_of(s, Tile(s, first + t), x, zeros, cells);
    for (long c = 0; c < s.c; c += L) {
      Vector in[36], half[36];
      for (int k = 0; k < 36; k++) in[k] = load(cells[k] + c);
      for (int j = 0; j < 6; j++) to_points(in + j, 6, half + j, 6);
      for (int i = 0; i < 6; i++) to_points(half + i * 6, 1, in + i * 6, 1);
      for (int k = 0; k < 36; k++) store(v + (k * BLOCK + t) * s.c + c, in[k]);
    }
  }
}

// `cells` says which of a window's cells, bit by bit, are its positive maximum; without pooling, if there is one.
static void forward(const Shape& s, const float* x, const float* w, const float* bias, float* y, uint8_t* cells) {
  float* u = scratch(36 * s.c * s.o + 36 * BLOCK * (s.c + s.o) + s.c);
  float *v = u + 36 * s.c * s.o, *m = v + 36 * BLOCK * s.c, *zeros = m + 36 * BLOCK * s.o;
  std::memset(zeros, 0, s.c * sizeof(float));
  kernel_to_points(s, w, u, false);
  const int window = s.pool ? 2 : 1;
  for (long first = 0; first < s.tiles(); first += BLOCK) {
    long count = std::min<long>(BLOCK, s.tiles() - first);
    images_to_points(s, x, zeros, first, count, v);
    for (int k = 0; k < 36; k++)
      multiply(count, s.o, {s.c, v + k * BLOCK * s.c, s.c, 1, u + k * s.c * s.o, s.o, m + k * BLOCK * s.o, s.o, false});
    for (long t = 0; t < count; t++) {
      Tile at(s, first + t);
      for (long o = 0; o < s.o; o += L) {
        Vector in[36], half[24], out[16], b = load(bias + o);
        for (int k = 0; k < 36; k++) in[k] = load(m + (k * BLOCK + t) * s.o + o);
        for (int j = 0; j < 6; j++) from_points(in + j, 6, half + j, 6);
        for (int i = 0; i < 4; i++) from_points(half + i * 6, 1, out + i * 4, 1);
        for (int k = 0; k < 16; k++) out[k] += b;
        for (long i = 0; i < s.side(); i++)
          for (long j = 0; j < s.side(); j++) {
            long to = output_of(s, at, i, j);
            if (to < 0) continue;
            auto cell = [&](int k) { return out[(i * window + k / 2) * 4 + j * window + k % 2]; };
            Vector best = cell(0);
            for (int k = 1; k < window * window; k++) {  // NaN stays, as with jnp.maximum: divergence must be seen
              Vector z = cell(k);
              best = (z > best) | (z != z) ? z : best;
            }
            Whole which = {};
            for (int k = 0; k < window * window; k++) which |= (cell(k) == best) & (best > 0) & (1 << k);
            store(y + to + o, best <= 0 ? Vector{} : best);
            *(Bytes*)(cells + to + o) = __builtin_convertvector(which, Bytes);
          }
      }
    }
  }
}

static void backward(const Shape& s, const float* x, const float* w, const uint8_t* cells, const float* dy, float* dx,
                     float* dw, float* db) {
  const long n = s.c * s.o;
  const int window = s.pool ? 2 : 1;
  float* u = scratch(72 * n + 36 * BLOCK * (2 * s.c + s.o) + 2 * s.c);
  float *du = u + 36 * n, *v = du + 36 * n, *dv = v + 36 * BLOCK * s.c, *dm = dv + 36 * BLOCK * s.c;
  float *zeros = dm + 36 * BLOCK * s.o, *nowhere = zeros + s.c;
  std::memset(zeros, 0, s.c * sizeof(float));
  std::memset(du, 0, 36 * n * sizeof(float));
  std::memset(dx, 0, s.n * s.h * s.w * s.c * sizeof(float));
  std::memset(dw, 0, 9 * n * sizeof(float));
  std::memset(db, 0, s.o * sizeof(float));
  kernel_to_points(s, w, u, true);
  for (long first = 0; first < s.tiles(); first += BLOCK) {
    long count = std::min<long>(BLOCK, s.tiles() - first);
    images_to_points(s, x, zeros, first, count, v);
    for (long o = 0; o < s.o; o += L) {
      Vector sum = {};
      for (long t = 0; t < count; t++) {
        Tile at(s, first + t);
        Vector out[16], half[24], points[36];
        for (long i = 0; i < s.side(); i++)
          for (long j = 0; j < s.side(); j++) {
            long from = output_of(s, at, i, j);
            Whole which = from < 0 ? Whole{} : __builtin_convertvector(*(const Bytes*)(cells + from + o), Whole);
            Vector d = from < 0 ? Vector{} : load(dy + from + o);
            Whole tied = {};
            for (int k = 0; k < window * window; k++) tied += (which >> k) & 1;
            d = which != 0 ? d : Vector{};
            sum += d;
            if (s.pool) d /= __builtin_convertvector(tied + (tied == 0 ? Whole{} + 1 : Whole{}), Vector);
            for (int k = 0; k < window * window; k++)
              out[(i * window + k / 2) * 4 + j * window + k % 2] = (which & (1 << k)) != 0 ? d : Vector{};
          }
        for (int j = 0; j < 4; j++) from_points_transposed(out + j, 4, half + j, 4);
        for (int i = 0; i < 6; i++) from_points_transposed(half + i * 4, 1, points + i * 6, 1);
        for (int k = 0; k < 36; k++) store(dm + (k * BLOCK + t) * s.o + o, points[k]);
      }
      store(db + o, load(db + o) + sum);
    }
    for (int k = 0; k < 36; k++) {
      const float *vk = v + k * BLOCK * s.c, *dmk = dm + k * BLOCK * s.o;
      multiply(s.c, s.o, {count, vk, 1, s.c, dmk, s.o, du + k * n, s.o, true});
      multiply(count, s.c, {s.o, dmk, s.o, 1, u + k * n, s.c, dv + k * BLOCK * s.c, s.c, false});
    }
    for (long t = 0; t < count; t++) {
      float* to[36];
      inputs_of(s, Tile(s, first + t), dx, nowhere, to);
      for (long c = 0; c < s.c; c += L) {
        Vector in[36], half[36];
        for (int k = 0; k < 36; k++) in[k] = load(dv + (k * BLOCK + t) * s.c + c);
        for (int j = 0; j < 6; j++) to_points_transposed(in + j, 6, half + j, 6);
        for (int i = 0; i < 6; i++) to_points_transposed(half + i * 6, 1, in + i * 6, 1);
        for (int k = 0; k < 36; k++) {
          Vector d = in[k];
          if (to[k] != nowhere) store(to[k] + c, load(to[k] + c) + d);
        }
      }
    }
  }
  for (int point = 0; point < 36; point++)
    for (int k = 0; k < 9; k++) {
      float g = G[point / 6][k / 3] * G[point % 6][k % 3];
      if (g != 0)
        for (long e = 0; e < n; e++) dw[k * n + e] += g * du[point * n + e];
    }
}

// The calls.

static Shape shape(Sizes x, Sizes y, size_t vmapped, int32_t top, int32_t left, int32_t pool) {
  const auto a = x.begin() + vmapped, b = y.begin() + vmapped;
  return {a[0], a[1], a[2], a[3], b[3], top, left, b[1], b[2], pool != 0};
}

static ffi::Error Forward(Floats x, Floats w, Floats b, ffi::Result<Floats> y, ffi::Result<Masks> cells, int32_t top,
                          int32_t left, int32_t pool) try {
  const Sizes all = y->dimensions();
  const size_t vmapped = all.size() - 4;
  const Shape s = shape(x.dimensions(), all, vmapped, top, left, pool);
  const long each = numbers(all, vmapped, all.size());
  for (long i = 0; i < numbers(all, 0, vmapped); i++) {
    auto part = [&](Floats& a) { return a.typed_data() + offset(a.dimensions(), all, vmapped, i); };
    forward(s, part(x), part(w), part(b), y->typed_data() + i * each, cells->typed_data() + i * each);
  }
  give_back();
  return ffi::Error::Success();
} catch (const std::bad_alloc&) {
  return ffi::Error(ffi::ErrorCode::kResourceExhausted, "no memory for a convolution");
}

static ffi::Error Backward(Floats x, Floats w, Masks cells, Floats dy, ffi::Result<Floats> dx, ffi::Result<Floats> dw,
                           ffi::Result<Floats> db, int32_t top, int32_t left, int32_t pool) try {
  const Sizes all = dx->dimensions();
  const size_t vmapped = all.size() - 4;
  const Shape s = shape(x.dimensions(), dy.dimensions(), vmapped, top, left, pool);
  for (long i = 0; i < numbers(all, 0, vmapped); i++) {
    auto part = [&](auto& a) { return a.typed_data() + offset(a.dimensions(), all, vmapped, i); };
    backward(s, part(x), part(w), part(cells), part(dy), part(*dx), part(*dw), part(*db));
  }
  give_back();
  return ffi::Error::Success();
} catch (const std::bad_alloc&) {
  return ffi::Error(ffi::ErrorCode::kResourceExhausted, "no memory for a convolution");
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(conv_forward, Forward,
                              ffi::Ffi::Bind().Arg<Floats>().Arg<Floats>().Arg<Floats>().Ret<Floats>().Ret<Masks>()
                                  .Attr<int32_t>("top").Attr<int32_t>("left").Attr<int32_t>("pool"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(conv_backward, Backward,
                              ffi::Ffi::Bind().Arg<Floats>().Arg<Floats>().Arg<Masks>().Arg<Floats>()
                                  .Ret<Floats>().Ret<Floats>().Ret<Floats>()
                                  .Attr<int32_t>("top").Attr<int32_t>("left").Attr<int32_t>("pool"));
