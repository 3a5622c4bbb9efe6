// What the kernels share: vectors, matrix products, memory, and where vmap puts things.
//
// One call uses one thread, since every core is a device of its own; sums have a fixed order.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

#ifdef __AVX512F__
constexpr int L = 16, REGISTERS = 24, WIDEST = 4;  // numbers in a vector, vectors for sums, of these in a row
#else
constexpr int L = 8, REGISTERS = 12, WIDEST = 2;
#endif

typedef float Vector __attribute__((vector_size(4 * L)));
typedef int32_t Whole __attribute__((vector_size(4 * L)));
typedef float Anywhere __attribute__((vector_size(4 * L), aligned(4), may_alias));
typedef uint8_t Bytes __attribute__((vector_size(L), aligned(1), may_alias));

static inline Vector load(const float* p) { return *(const Anywhere*)p; }
static inline void store(float* p, Vector v) { *(Anywhere*)p = v; }

static inline Vector load_once(const float* p) {  // GCC would read it again for every product: loads, not sums, would be the limit
  Vector v = load(p);
#ifdef __AVX__
  asm("" : "+v"(v));
#endif
  return v;
}

// Matrix products: C (+)= A B, where A[i, k] = a[i * rows + k * columns], and rows of B and C are contiguous.

struct Product {
  long depth;
  const float* a;
  long rows, columns;
  const float* b;
  long b_row;
  float* c;
  long c_row;
  bool add;
};

template <int M, int N>
static void sums(const Product& p) {
  Vector c[M][N];
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) c[i][j] = p.add ? load(p.c + i * p.c_row + j * L) : Vector{};
  for (long k = 0; k < p.depth; k++) {
    Vector b[N];
    for (int j = 0; j < N; j++) b[j] = load_once(p.b + k * p.b_row + j * L);
    for (int i = 0; i < M; i++)
      for (int j = 0; j < N; j++) c[i][j] += p.a[i * p.rows + k * p.columns] * b[j];
  }
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) store(p.c + i * p.c_row + j * L, c[i][j]);
}

template <int M, int N>
static void some_rows(long m, const Product& p) {
  if (m == M) return sums<M, N>(p);
  if constexpr (M > 1) some_rows<M - 1, N>(m, p);
}

template <int N>
static void columns(long m, Product p) {
  constexpr int M = std::min(REGISTERS / N, 12);
  for (; m > 0; m -= M, p.a += M * p.rows, p.c += M * p.c_row) some_rows<M, N>(std::min<long>(m, M), p);
}

static void multiply(long m, long n, Product p) {
  for (long left = n / L; left > 0;) {
    int now = left >= WIDEST ? WIDEST : left >= 2 ? 2 : 1;
    if (now == WIDEST) columns<WIDEST>(m, p);
    else if (now == 2) columns<2>(m, p);
    else columns<1>(m, p);
    left -= now, p.b += now * L, p.c += now * L;
  }
}

// Memory.

static thread_local std::vector<float> memory;  // of this thread, from call to call
constexpr size_t KEPT = 16 << 20;               // numbers at most

static float* scratch(size_t numbers) {  // aligned to a cache line
  if (memory.size() < numbers + 16) std::vector<float>().swap(memory), memory.resize(numbers + 16);
  return (float*)(((uintptr_t)memory.data() + 63) & ~uintptr_t(63));
}

static void give_back() {  // what is too much to be kept
  if (memory.size() > KEPT) std::vector<float>().swap(memory);
}

// Calls. vmap puts axes in front of every array, of length 1 where it is the same for all.

using Sizes = ffi::AnyBuffer::Dimensions;
using Floats = ffi::Buffer<ffi::F32>;
using Masks = ffi::Buffer<ffi::U8>;

static long numbers(Sizes d, size_t from, size_t to) {
  long product = 1;
  for (size_t i = from; i < to; i++) product *= d[i];
  return product;
}

// Where number `lane` of all calls finds its part of an array with `axes` axes of its own.
static long offset(Sizes d, Sizes all, size_t vmapped, long lane) {
  long at = 0, stride = numbers(d, vmapped, d.size());
  for (size_t i = vmapped; i-- > 0;) {
    if (d[i] != 1) at += lane % all[i] * stride;
    lane /= all[i], stride *= d[i];
  }
  return at;
}
