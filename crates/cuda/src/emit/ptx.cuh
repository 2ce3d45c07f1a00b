// The PTX instructions that schedules name, one function each. Self-contained: no headers.

// Every source has all of it.
#pragma nv_diag_suppress 177

#define DEVICE static __device__ __forceinline__

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;
typedef unsigned long long u64;
typedef long long i64;

DEVICE u16 cvt_bf16(float x) {
  u16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
// Two of them, the first in the low half.
DEVICE u32 cvt_bf16_pair(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
DEVICE u16 cvt_f16(float x) {
  u16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
DEVICE u32 cvt_f16_pair(float low, float high) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
DEVICE float from_f16(u16 x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
}
// A product rounded towards zero, so that only infinite factors make it infinite.
DEVICE float multiply_down(float x, float y) {
  float r;
  asm("mul.rz.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
  return r;
}
DEVICE float ex2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
DEVICE float reciprocal(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
// The larger and the smaller; a NaN stays.
DEVICE float max_(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
DEVICE float min_(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}

// The same of two pairs.
DEVICE u32 max_bf16_pair(u32 a, u32 b) {
  u32 r;
  asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
DEVICE u32 min_bf16_pair(u32 a, u32 b) {
  u32 r;
  asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
DEVICE u32 max_f16_pair(u32 a, u32 b) {
  u32 r;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
DEVICE u32 min_f16_pair(u32 a, u32 b) {
  u32 r;
  asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}

// Whether it holds for some thread of the warp, all of which ask.
DEVICE bool warp_any(bool x) { return __any_sync(0xffffffffu, x); }

// A number below N (a power of two), such that addresses made from it are computed again in every chunk of a stream:
// the compiler would keep each of them in a register through the whole loop, and has none to spare.
template <int N>
DEVICE int pinned(int x) {
  int own;
  asm volatile("mov.u32 %0, %1;" : "=r"(own) : "r"(x));
  return own & (N - 1);
}

DEVICE u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// Copies `valid` bytes and fills the rest of `N` with zeros.
template <int N>
DEVICE void copy_async(u32 to, const void* from, int valid) {
  if constexpr (N == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(from), "r"(valid), "n"(N) : "memory");
  }
}
DEVICE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most N groups of this thread's copies are under way.
template <int N>
DEVICE void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
DEVICE void load_matrices(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
DEVICE void load_matrices_transposed(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// Accumulators are two rows, 8 apart, of two columns. The `_zero` functions start from 0 in their place.
#define MMA(NAME, NUMBER, C, ZERO, SHAPE)                                                                        \
  DEVICE void NAME(NUMBER* top, NUMBER* bottom, const u32 (&a)[4], u32 b0, u32 b1) {                             \
    asm("mma.sync.aligned." SHAPE " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"             \
        : "+" C(top[0]), "+" C(top[1]), "+" C(bottom[0]), "+" C(bottom[1])                                       \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                         \
  }                                                                                                              \
  DEVICE void NAME##_zero(NUMBER* top, NUMBER* bottom, const u32 (&a)[4], u32 b0, u32 b1) {                      \
    asm("mma.sync.aligned." SHAPE " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"         \
        : "=" C(top[0]), "=" C(top[1]), "=" C(bottom[0]), "=" C(bottom[1])                                       \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), C(ZERO));                                \
  }
#define MMA_16(NAME, TYPE) MMA(NAME, float, "f", 0.0f, "m16n8k16.row.col.f32." TYPE "." TYPE ".f32")
MMA_16(mma_bf16, "bf16")
MMA_16(mma_f16, "f16")
#define MMA_8(NAME, A, B) MMA(NAME, int, "r", 0, "m16n8k32.row.col.s32." A "." B ".s32")
MMA_8(mma_s8_s8, "s8", "s8")
MMA_8(mma_s8_u8, "s8", "u8")
MMA_8(mma_u8_s8, "u8", "s8")
MMA_8(mma_u8_u8, "u8", "u8")
#undef MMA

// Neighbouring words in one piece; the address is a multiple of their size. No kernel reads what it writes, so that loads
// may be moved across.
DEVICE void store_words(void* to, const u32 (&x)[1]) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(x[0]));
}
DEVICE void store_words(void* to, const u32 (&x)[2]) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(x[0]), "r"(x[1]));
}
DEVICE void store_words(void* to, const u32 (&x)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]));
}
// A register whose contents the compiler no longer knows, so that what it made of them is made again: numbers unpacked
// before a barrier would take twice the registers behind it.
DEVICE void forget(u32& x) { asm volatile("" : "+r"(x)); }
