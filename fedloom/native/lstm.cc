// An LSTM layer, from its inputs to its outputs, and its gradient.
//
// The mathematics of fedloom/models/lstm.py, with the same order of gates: input, forget, candidate, output. Matrices are
// packed once a call into panels that are read in order, again and again; the gates of L units are one panel of the
// recurrent weights, so that a step ends in registers. Arrays are [batch, time, ...], as the layer has them.

#include "common.h"

struct Shape {
  long batch, time, features, units;
  long rows() const { return batch * time; }
};

// Products with a packed matrix: panels of columns, as wide as sums are; the last ones narrower, filled up with zeros.

constexpr long WIDE = WIDEST * L;

static long filled(long n) { return (n + L - 1) / L * L; }

static long width(long left, long widest) { return left >= widest ? widest : left > L ? 2 * L : L; }  // of the next one

static void pack(long depth, long n, const float* b, long row, long column, float* to, long widest = WIDE) {
  for (long j = 0; j < n;) {
    const long wide = width(n - j, widest), full = std::min(wide, n - j);
    if (column == 1)
      for (long k = 0; k < depth; k++) std::memcpy(to + k * wide, b + k * row + j, full * sizeof(float));
    else
      for (long first = 0; first < depth; first += L)  // a few cache lines at a time
        for (long i = 0; i < full; i++)
          for (long k = first; k < std::min(first + L, depth); k++) to[k * wide + i] = b[k * row + (j + i) * column];
    for (long k = 0; full < wide && k < depth; k++)
      std::memset(to + k * wide + full, 0, (wide - full) * sizeof(float));
    to += depth * wide, j += wide;
  }
}

// C (+)= A B with rows of C that have room for `filled(n)` numbers.
static void multiply_packed(long m, long n, Product p) {
  for (long j = 0; j < n;) {
    const long wide = p.b_row = width(n - j, WIDE);
    if (wide == WIDE) columns<WIDEST>(m, p);
    else if (wide == 2 * L) columns<2>(m, p);
    else columns<1>(m, p);
    p.b += p.depth * wide, p.c += wide, j += wide;
  }
}

static inline Vector tanh_of(Vector x) {  // Eigen's rational function, which XLA has too
  const Vector end = Vector{} + 7.90531110763549805f;
  x = x > end ? end : x, x = x < -end ? -end : x;  // NaN stays
  const Vector s = x * x;
  Vector p = s * -2.76076847742355e-16f + 2.00018790482477e-13f;
  p = p * s - 8.60467152213735e-11f, p = p * s + 5.12229709037114e-08f, p = p * s + 1.48572235717979e-05f;
  p = p * s + 6.37261928875436e-04f, p = p * s + 4.89352455891786e-03f;
  Vector q = s * 1.19825839466702e-06f + 1.18534705686654e-04f;
  q = q * s + 2.26843463243900e-03f, q = q * s + 4.89352518554385e-03f;
  return x * p / q;
}

static inline Vector sigmoid_of(Vector x) { return tanh_of(0.5f * x) * 0.5f + 0.5f; }

// One step of a few examples: f(number of examples, first example), with the number known to the compiler.

constexpr int TOGETHER = REGISTERS / 4;

template <int M, class F>
static void with_rows(long m, long first, F f) {
  if (m == M) return f(std::integral_constant<int, M>{}, first);
  if constexpr (M > 1) with_rows<M - 1>(m, first, f);
}

template <class F>
static void for_rows(long batch, F f) {
  for (long b = 0; b < batch; b += TOGETHER) with_rows<TOGETHER>(std::min<long>(TOGETHER, batch - b), b, f);
}

// sum[i][j] += A[i, k] panel[k][j], for one panel of four vectors.
template <int M>
static inline void add_product(long depth, const float* a, long row, const float* panel, Vector sum[M][4]) {
  for (long k = 0; k < depth; k++, panel += 4 * L) {
    Vector b[4];
    for (int j = 0; j < 4; j++) b[j] = load_once(panel + j * L);
    for (int i = 0; i < M; i++)
      for (int j = 0; j < 4; j++) sum[i][j] += a[i * row + k] * b[j];
  }
}

static void forward(const Shape& s, const float* x, const float* wx, const float* wh, const float* bias,
                    const uint8_t* keep, float* gates, float* h, float* c) {
  const long units = s.units, all = 4 * units, state = s.batch * units;
  float* panels = scratch(std::max(s.features, units) * all + 3 * state);
  float *now = panels + std::max(s.features, units) * all, *next = now + state, *cell = next + state;
  pack(s.features, all, wx, all, 1, panels);
  multiply_packed(s.rows(), all, {s.features, x, s.features, 1, panels, 0, gates, all, false});

  float* to = panels;
  for (long u = 0; u < units; u += L)
    for (long k = 0; k < units; k++)
      for (int j = 0; j < 4; j++, to += L) store(to, load(wh + k * all + j * units + u));
  std::memset(now, 0, 3 * state * sizeof(float));
  for (long t = 0; t < s.time; t++, std::swap(now, next))
    for_rows(s.batch, [&](auto m, long first) {
      constexpr int M = decltype(m)::value;
      for (long u = 0; u < units; u += L) {
        auto place = [&](int i) { return (first + i) * s.time + t; };
        Vector z[M][4];
        for (int i = 0; i < M; i++)
          for (int j = 0; j < 4; j++) z[i][j] = load(gates + place(i) * all + j * units + u) + load(bias + j * units + u);
        if (t) add_product<M>(units, now + first * units, units, panels + u * all, z);
        for (int i = 0; i < M; i++) {
          const Vector in = sigmoid_of(z[i][0]), forget = sigmoid_of(z[i][1]), candidate = tanh_of(z[i][2]);
          const Vector out = sigmoid_of(z[i][3]);
          float *to = gates + place(i) * all + u, *before = cell + (first + i) * units + u;
          store(to, in), store(to + units, forget), store(to + 2 * units, candidate), store(to + 3 * units, out);
          Vector new_c = forget * load(before) + in * candidate, new_h = out * tanh_of(new_c);
          if (keep && keep[place(i)]) new_c = load(before), new_h = load(now + (first + i) * units + u);
          store(before, new_c), store(next + (first + i) * units + u, new_h);
          store(c + place(i) * units + u, new_c), store(h + place(i) * units + u, new_h);
        }
      }
    });
}

static void backward(const Shape& s, const float* x, const float* wx, const float* wh, const uint8_t* keep,
                     const float* gates, const float* h, const float* c, const float* dy, float* dx, float* dwx,
                     float* dwh, float* db) {
  const long units = s.units, all = 4 * units, state = s.batch * units, rows = s.rows(), wide = filled(s.features);
  float* panels = scratch(std::max({units, rows, wide}) * all + 2 * state + rows * (all + units + wide));
  float *dh = panels + std::max({units, rows, wide}) * all, *dc = dh + state, *dz = dc + state;
  float *before = dz + rows * all, *out = before + rows * units;

  pack(all, units, wh, 1, all, panels, 4 * L);
  std::memset(dh, 0, 2 * state * sizeof(float));
  std::memset(db, 0, all * sizeof(float));
  for (long t = s.time - 1; t >= 0; t--) {
    for (long b = 0; b < s.batch; b++)
      for (long u = 0; u < units; u += L) {
        const long row = b * s.time + t, at = row * units + u;
        const float* from = gates + row * all + u;
        float *to = dz + row * all + u, *its_dh = dh + b * units + u, *its_dc = dc + b * units + u;
        const Vector d = load(its_dh) + load(dy + at);
        if (keep && keep[row]) {
          for (int j = 0; j < 4; j++) store(to + j * units, Vector{});
          store(its_dh, d);
          continue;
        }
        const Vector in = load(from), forget = load(from + units), candidate = load(from + 2 * units);
        const Vector output = load(from + 3 * units), last = t ? load(c + at - units) : Vector{};
        const Vector tanh_c = tanh_of(load(c + at)), sum = load(its_dc) + d * output * (1 - tanh_c * tanh_c);
        const Vector its_dz[4] = {sum * candidate * in * (1 - in), sum * last * forget * (1 - forget),
                                  sum * in * (1 - candidate * candidate), d * tanh_c * output * (1 - output)};
        for (int j = 0; j < 4; j++) {
          store(to + j * units, its_dz[j]);
          store(db + j * units + u, load(db + j * units + u) + its_dz[j]);
        }
        store(its_dc, sum * forget), store(its_dh, Vector{});
      }
    if (t)  // dh = dz wh^T, and for examples whose state was kept, what it was
      for_rows(s.batch, [&](auto m, long first) {
        constexpr int M = decltype(m)::value;
        for (long u = 0; u < units; u += 4 * L) {
          Vector sum[M][4];
          for (int i = 0; i < M; i++)
            for (int j = 0; j < 4; j++) sum[i][j] = load(dh + (first + i) * units + u + j * L);
          add_product<M>(all, dz + (first * s.time + t) * all, s.time * all, panels + u * all, sum);
          for (int i = 0; i < M; i++)
            for (int j = 0; j < 4; j++) store(dh + (first + i) * units + u + j * L, sum[i][j]);
        }
      });
  }

  pack(all, s.features, wx, 1, all, panels);
  float* result = wide == s.features ? dx : out;
  multiply_packed(rows, s.features, {all, dz, all, 1, panels, 0, result, wide, false});
  if (result != dx)
    for (long r = 0; r < rows; r++) std::memcpy(dx + r * s.features, out + r * wide, s.features * sizeof(float));

  for (long r = 0; r < rows; r++)
    if (r % s.time) std::memcpy(before + r * units, h + (r - 1) * units, units * sizeof(float));
    else std::memset(before + r * units, 0, units * sizeof(float));
  pack(rows, all, dz, all, 1, panels);
  multiply_packed(s.features, all, {rows, x, 1, s.features, panels, 0, dwx, all, false});
  multiply_packed(units, all, {rows, before, 1, units, panels, 0, dwh, all, false});
}

// The calls. A mask without numbers is none.

static Shape shape(Sizes x, Sizes h, size_t vmapped) {
  const auto a = x.begin() + vmapped, b = h.begin() + vmapped;
  return {a[0], a[1], a[2], b[2]};
}

static ffi::Error Forward(Floats x, Floats wx, Floats wh, Floats b, Masks keep, ffi::Result<Floats> gates,
                          ffi::Result<Floats> h, ffi::Result<Floats> c) try {
  const Sizes all = h->dimensions();
  const size_t vmapped = all.size() - 3;
  const Shape s = shape(x.dimensions(), all, vmapped);
  for (long i = 0; i < numbers(all, 0, vmapped); i++) {
    auto part = [&](auto& a) { return a.typed_data() + offset(a.dimensions(), all, vmapped, i); };
    const uint8_t* mask = keep.element_count() ? part(keep) : nullptr;
    forward(s, part(x), part(wx), part(wh), part(b), mask, part(*gates), part(*h), part(*c));
  }
  give_back();
  return ffi::Error::Success();
} catch (const std::bad_alloc&) {
  return ffi::Error(ffi::ErrorCode::kResourceExhausted, "no memory for an LSTM");
}

static ffi::Error Backward(Floats x, Floats wx, Floats wh, Masks keep, Floats gates, Floats h, Floats c, Floats dy,
                           ffi::Result<Floats> dx, ffi::Result<Floats> dwx, ffi::Result<Floats> dwh,
                           ffi::Result<Floats> db) try {
  const Sizes all = dx->dimensions();
  const size_t vmapped = all.size() - 3;
  const Shape s = shape(all, h.dimensions(), vmapped);
  for (long i = 0; i < numbers(all, 0, vmapped); i++) {
    auto part = [&](auto& a) { return a.typed_data() + offset(a.dimensions(), all, vmapped, i); };
    const uint8_t* mask = keep.element_count() ? part(keep) : nullptr;
    backward(s, part(x), part(wx), part(wh), mask, part(gates), part(h), part(c), part(dy), part(*dx), part(*dwx),
             part(*dwh), part(*db));
  }
  give_back();
  return ffi::Error::Success();
} catch (const std::bad_alloc&) {
  return ffi::Error(ffi::ErrorCode::kResourceExhausted, "no memory for an LSTM");
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(lstm_forward, Forward,
                              ffi::Ffi::Bind().Arg<Floats>().Arg<Floats>().Arg<Floats>().Arg<Floats>().Arg<Masks>()
                                  .Ret<Floats>().Ret<Floats>().Ret<Floats>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(lstm_backward, Backward,
                              ffi::Ffi::Bind().Arg<Floats>().Arg<Floats>().Arg<Floats>().Arg<Masks>().Arg<Floats>()
                                  .Arg<Floats>().Arg<Floats>().Arg<Floats>()
                                  .Ret<Floats>().Ret<Floats>().Ret<Floats>().Ret<Floats>());
