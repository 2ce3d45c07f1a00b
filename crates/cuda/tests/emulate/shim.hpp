// The PTX functions and the parts of CUDA that emitted sources use, for the host's compiler: a block's threads are
// fibers that run until they wait for each other. Asynchronous copies happen as late as they may, shared memory starts
// as rubbish.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <vector>

#define __device__
#define __global__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__
#define DEVICE static inline __attribute__((unused))

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;
typedef unsigned long long u64;
typedef long long i64;

// ---- Fibers -----------------------------------------------------------------------------------------------------

extern "C" {
alignas(1024) u8 shared[256 * 1024];
}

struct Copy {
  u32 to;
  const void* from;
  int bytes, valid;
};
struct Slot {
  u32 words[8];
};
struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  bool done = false, at_barrier = false;
  // Collectives begun; what was given to each of the last two.
  long turn = 0;
  Slot slots[2];
  long barriers = 0, votes = 0;
  std::vector<std::vector<Copy>> groups;
};
static std::vector<Fiber> fibers;
static int self;
static ucontext_t scheduler;
static int any[3];
struct Index {
  int x;
};
static Index threadIdx, blockIdx;

static void yield() { swapcontext(&fibers[self].context, &scheduler); }

// Gives `mine` to the warp and waits until every lane has given its own; lane l's is then `lane_slot(l)`.
static void exchange(const Slot& mine) {
  Fiber& f = fibers[self];
  f.slots[f.turn % 2] = mine;
  ++f.turn;
  long turn = f.turn;
  int first = self / 32 * 32;
  long waited = 0;
  for (int l = 0; l < 32;) {
    if (fibers[first + l].turn >= turn) {
      ++l;
    } else {
      if (++waited > 100000) {
        fprintf(stderr, "lanes of a warp wait for one that does not exchange\n");
        exit(3);
      }
      yield();
    }
  }
}
static const Slot& lane_slot(int lane) {
  Fiber& f = fibers[self];
  return fibers[self / 32 * 32 + lane].slots[(f.turn - 1) % 2];
}
static void __syncthreads() {
  long mine = ++fibers[self].barriers;
  for (size_t t = 0; t < fibers.size();) {
    if (fibers[t].done && fibers[t].barriers < mine) {
      fprintf(stderr, "a thread ended before a barrier that others wait at\n");
      exit(3);
    }
    if (fibers[t].barriers >= mine) {
      ++t;
    } else {
      fibers[self].at_barrier = true;
      yield();
      fibers[self].at_barrier = false;
    }
  }
}
static bool __syncthreads_or(bool x) {
  // Before the barrier nobody is further than this one: the next one's answer can be cleared.
  long k = fibers[self].votes++;
  any[(k + 1) % 3] = 0;
  any[k % 3] |= x;
  __syncthreads();
  return any[k % 3];
}
template <class T>
static T __shfl_xor_sync(u32, T x, int mask) {
  Slot mine;
  memcpy(mine.words, &x, sizeof x);
  exchange(mine);
  T y;
  memcpy(&y, lane_slot((self % 32) ^ mask).words, sizeof y);
  return y;
}
DEVICE bool warp_any(bool x) {
  for (int mask = 1; mask < 32; mask *= 2) x |= __shfl_xor_sync(0xffffffffu, x, mask);
  return x;
}
static u64 atomicCAS(u64* p, u64 compare, u64 value) {
  u64 old = *p;
  if (old == compare) *p = value;
  return old;
}

// ---- Numbers ----------------------------------------------------------------------------------------------------

template <class To, class From>
static To bits(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  memcpy(&y, &x, sizeof y);
  return y;
}
static float __int_as_float(int x) { return bits<float>(x); }
static float __uint_as_float(u32 x) { return bits<float>(x); }
static int __float_as_int(float x) { return bits<int>(x); }
static u32 __float_as_uint(float x) { return bits<u32>(x); }
static float __double2float_rn(double x) { return (float)x; }
static float __double2float_rz(double x) {
  float f = (float)x;
  return fabs((double)f) > fabs(x) ? nextafterf(f, 0.0f) : f;
}
static float __int2float_rn(int x) { return (float)x; }
static int __double2int_rn(double x) {
  double r = rint(x);
  return r >= 2147483647.0 ? 2147483647 : r <= -2147483648.0 ? (-2147483647 - 1) : (int)r;
}
static int __float2int_rn(float x) { return __double2int_rn(x); }

DEVICE u16 cvt_bf16(float x) {
  u32 b = bits<u32>(x);
  return x != x ? 0x7fff : (b + 0x7fff + (b >> 16 & 1)) >> 16;
}
DEVICE u32 cvt_bf16_pair(float low, float high) { return cvt_bf16(low) | (u32)cvt_bf16(high) << 16; }
DEVICE u16 cvt_f16(float x) { return bits<u16>((_Float16)x); }
DEVICE u32 cvt_f16_pair(float low, float high) { return cvt_f16(low) | (u32)cvt_f16(high) << 16; }
DEVICE float from_f16(u16 x) { return (float)bits<_Float16>(x); }
DEVICE float multiply_down(float x, float y) {
  const double exact = double(x) * y;
  const float nearest = float(exact);
  return std::isfinite(exact) && fabs(double(nearest)) > fabs(exact) ? nextafterf(nearest, 0.0f) : nearest;
}
DEVICE float ex2(float x) { return exp2f(x); }

// Of the eight bytes of both words those that the selector's nibbles number.
DEVICE unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long both = static_cast<unsigned long long>(y) << 32 | x;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned which = selector >> (4 * i) & 7;
    out |= static_cast<unsigned>(both >> (8 * which) & 0xff) << (8 * i);
  }
  return out;
}
DEVICE float reciprocal(float x) { return 1.0f / x; }
DEVICE float max_(float a, float b) { return a != a || a > b ? a : b; }
DEVICE float min_(float a, float b) { return a != a || a < b ? a : b; }
DEVICE float half_of(u32 pair, int second, bool bf16) {
  u16 x = second ? pair >> 16 : pair;
  return bf16 ? bits<float>((u32)x << 16) : from_f16(x);
}
DEVICE u32 max_bf16_pair(u32 a, u32 b) {
  return cvt_bf16_pair(max_(half_of(a, 0, true), half_of(b, 0, true)), max_(half_of(a, 1, true), half_of(b, 1, true)));
}
DEVICE u32 min_bf16_pair(u32 a, u32 b) {
  return cvt_bf16_pair(min_(half_of(a, 0, true), half_of(b, 0, true)), min_(half_of(a, 1, true), half_of(b, 1, true)));
}
DEVICE u32 max_f16_pair(u32 a, u32 b) {
  return cvt_f16_pair(max_(half_of(a, 0, false), half_of(b, 0, false)), max_(half_of(a, 1, false), half_of(b, 1, false)));
}
DEVICE u32 min_f16_pair(u32 a, u32 b) {
  return cvt_f16_pair(min_(half_of(a, 0, false), half_of(b, 0, false)), min_(half_of(a, 1, false), half_of(b, 1, false)));
}
template <int N>
DEVICE int pinned(int x) { return x & (N - 1); }
DEVICE u32 shared_address(const void* p) { return (u32)((const u8*)p - shared); }

// ---- Copies -----------------------------------------------------------------------------------------------------

static void perform(const Copy& c) {
  u8 buffer[16] = {0};
  memcpy(buffer, c.from, c.valid);
  if ((uintptr_t)c.from % c.bytes && c.valid || c.to % c.bytes) {
    fprintf(stderr, "a copy of %d bytes is not aligned\n", c.bytes);
    exit(3);
  }
  memcpy(shared + c.to, buffer, c.bytes);
}
template <int N>
DEVICE void copy_async(u32 to, const void* from, int valid) {
  if (fibers[self].groups.empty()) fibers[self].groups.push_back({});
  fibers[self].groups.back().push_back({to, from, N, valid});
}
DEVICE void copies_commit() {
  if (fibers[self].groups.empty()) fibers[self].groups.push_back({});
  fibers[self].groups.push_back({});
}
template <int N>
DEVICE void copies_wait() {
  auto& g = fibers[self].groups;
  // The last group is not committed yet.
  while (g.size() > N + 1) {
    for (auto& c : g.front()) perform(c);
    g.erase(g.begin());
  }
}

// ---- Tensor cores: PTX ISA, "Matrix fragments for mma" -----------------------------------------------------------

static void matrices(u32 (&r)[4], u32 address, bool transposed) {
  Slot mine;
  mine.words[0] = address;
  exchange(mine);
  int lane = self % 32;
  for (int i = 0; i < 4; ++i) {
    u16 half[2];
    for (int h = 0; h < 2; ++h) {
      int row = transposed ? lane % 4 * 2 + h : lane / 4;
      int column = transposed ? lane / 4 : lane % 4 * 2 + h;
      u32 start = lane_slot(i * 8 + row).words[0];
      if (start % 16) {
        fprintf(stderr, "a matrix row is not aligned\n");
        exit(3);
      }
      memcpy(&half[h], shared + start + column * 2, 2);
    }
    r[i] = half[0] | (u32)half[1] << 16;
  }
}
DEVICE void load_matrices(u32 (&r)[4], u32 address) { matrices(r, address, false); }
DEVICE void load_matrices_transposed(u32 (&r)[4], u32 address) { matrices(r, address, true); }

template <class Number, int BYTES, class A, class B>
static void multiply(Number* top, Number* bottom, const u32 (&a)[4], u32 b0, u32 b1, A left, B right) {
  Slot mine = {{a[0], a[1], a[2], a[3], b0, b1}};
  exchange(mine);
  int lane = self % 32;
  constexpr int depth = 32 / BYTES, half = depth / 2, per = 4 / BYTES;
  for (int e = 0; e < 4; ++e) {
    int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
    double sum = 0;
    for (int k = 0; k < depth; ++k) {
      u32 x = lane_slot(row % 8 * 4 + k % half / per).words[row / 8 + k / half * 2];
      u32 y = lane_slot(column * 4 + k % half / per).words[4 + k / half];
      int shift = k % per * 8 * BYTES;
      sum += left(x >> shift) * right(y >> shift);
    }
    Number* c = (e / 2 ? bottom : top) + e % 2;
    *c = (Number)((double)*c + sum);
  }
}
static double as_bf16(u32 x) { return bits<float>(x << 16); }
static double as_f16(u32 x) { return from_f16((u16)x); }
static double as_s8(u32 x) { return (signed char)x; }
static double as_u8(u32 x) { return (u8)x; }
#define MMA(NAME, NUMBER, BYTES, A, B)                                                                \
  DEVICE void NAME(NUMBER* top, NUMBER* bottom, const u32 (&a)[4], u32 b0, u32 b1) {                  \
    multiply<NUMBER, BYTES>(top, bottom, a, b0, b1, A, B);                                            \
  }                                                                                                   \
  DEVICE void NAME##_zero(NUMBER* top, NUMBER* bottom, const u32 (&a)[4], u32 b0, u32 b1) {           \
    top[0] = top[1] = bottom[0] = bottom[1] = 0;                                                      \
    multiply<NUMBER, BYTES>(top, bottom, a, b0, b1, A, B);                                            \
  }
MMA(mma_bf16, float, 2, as_bf16, as_bf16)
MMA(mma_f16, float, 2, as_f16, as_f16)
MMA(mma_s8_s8, int, 1, as_s8, as_s8)
MMA(mma_s8_u8, int, 1, as_s8, as_u8)
MMA(mma_u8_s8, int, 1, as_u8, as_s8)
MMA(mma_u8_u8, int, 1, as_u8, as_u8)

DEVICE void forget(u32&) {}
template <int N>
DEVICE void store_words(void* to, const u32 (&x)[N]) {
  if ((uintptr_t)to % sizeof x) {
    fprintf(stderr, "a store of %d words is not aligned\n", N);
    exit(3);
  }
  memcpy(to, x, sizeof x);
}

// ---- Launches ---------------------------------------------------------------------------------------------------

static void (*body)(void);
static void start() {
  body();
  fibers[self].done = true;
  yield();
}
// Runs `run` once per thread of every block.
static void launch(long grid, int block, void (*run)(void)) {
  body = run;
  for (long b = 0; b < grid; ++b) {
    memset(shared, 0xff, sizeof shared);
    fibers.clear();
    fibers.resize(block);
    for (auto& f : fibers) {
      f.stack.resize(256 * 1024);
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack.data();
      f.context.uc_stack.ss_size = f.stack.size();
      f.context.uc_link = nullptr;
      makecontext(&f.context, start, 0);
    }
    any[0] = any[1] = any[2] = 0;
    blockIdx.x = (int)b;
    // Each warp runs as far ahead of the others as barriers let it; which one is first changes from round to round.
    int warps = block / 32;
    bool alive = true;
    for (long round = 0; alive; ++round) {
      alive = false;
      for (int w = 0; w < warps; ++w) {
        int first = (round % 2 ? warps - 1 - w : w) * 32;
        for (bool runs = true; runs;) {
          runs = false;
          for (self = first; self < first + 32; ++self) {
            if (fibers[self].done) continue;
            alive = true;
            threadIdx.x = self;
            swapcontext(&scheduler, &fibers[self].context);
            runs |= !fibers[self].done && !fibers[self].at_barrier;
          }
        }
      }
    }
  }
}
// Any pointer.
struct Any {
  void* p;
  template <class T>
  operator T*() const {
    return (T*)p;
  }
};
static void* read_file(const char* name) {
  FILE* f = fopen(name, "rb");
  if (!f) exit(4);
  fseek(f, 0, SEEK_END);
  long n = ftell(f);
  rewind(f);
  void* p = aligned_alloc(256, (n + 511) / 256 * 256);
  if (fread(p, 1, n, f) != (size_t)n) exit(4);
  fclose(f);
  return p;
}
static void write_file(const char* name, const void* p, long n) {
  FILE* f = fopen(name, "wb");
  if (!f || fwrite(p, 1, n, f) != (size_t)n) exit(4);
  fclose(f);
}
