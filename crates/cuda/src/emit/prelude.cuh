// Number types, exact rounding, functions, and places in shared memory.

// Where the first gather that left its tensor is reported: 1 + kernel number, load number, dimension, coordinate.
struct Status {
  i64 kernel, load, dimension, coordinate;
};

DEVICE void report(Status* status, i64 kernel, i64 load, i64 dimension, i64 coordinate) {
  if (atomicCAS(reinterpret_cast<u64*>(&status->kernel), 0ull, static_cast<u64>(kernel)) == 0ull) {
    status->load = load;
    status->dimension = dimension;
    status->coordinate = coordinate;
  }
}

template <bool B>
struct Bool {
  static constexpr bool value = B;
};

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T x[N];
};

DEVICE i64 floor_div(i64 a, i64 b) { return a / b - (a % b != 0 && a < 0); }
DEVICE int floor_div_int(int a, int b) { return a / b - (a % b != 0 && a < 0); }
DEVICE int abs_int(int x) { return x < 0 ? -x : x; }
DEVICE int min_int(int a, int b) { return a < b ? a : b; }
DEVICE u32 min_u32(u32 a, u32 b) { return a < b ? a : b; }
DEVICE int max_int(int a, int b) { return a > b ? a : b; }

// ---- Number types -----------------------------------------------------------------------------------------------

DEVICE float inf() { return __int_as_float(0x7f800000); }
DEVICE float nan_() { return __int_as_float(0x7fc00000); }

// A double as a float that rounds on to any narrower type as the double would: towards zero, the last bit set if
// anything was lost (S. Boldo, G. Melquiond, "Emulation of a FMA and correctly rounded sums", 2008: round to odd).
DEVICE float to_odd(double x) {
  float f = __double2float_rz(x);
  return static_cast<double>(f) == x || x != x ? f : __int_as_float(__float_as_int(f) | 1);
}

// The magnitude's bits in a format with E exponent and M mantissa bits, to nearest even.
template <int E, int M>
DEVICE u32 pack_magnitude(float x) {
  constexpr int bias = (1 << (E - 1)) - 1;
  u32 bits = __float_as_uint(x) & 0x7fffffffu;
  if (bits < (static_cast<u32>(128 - bias) << 23)) {
    float anchor = __uint_as_float(static_cast<u32>(1 - bias - M + 23 + 127) << 23);
    return __float_as_uint(__uint_as_float(bits) + anchor) - __float_as_uint(anchor);
  }
  u32 rebiased = bits - (static_cast<u32>(127 - bias) << 23);
  return (rebiased + (1u << (22 - M)) - 1 + ((rebiased >> (23 - M)) & 1)) >> (23 - M);
}

struct F64 {
  typedef double raw;
  DEVICE double decode(raw x) { return x; }
  DEVICE raw encode(double x) { return x; }
  DEVICE double round(double x) { return x; }
};

struct F32 {
  typedef float raw;
  DEVICE float decode(raw x) { return x; }
  DEVICE raw encode(float x) { return x; }
  DEVICE raw encode(double x) { return __double2float_rn(x); }
  DEVICE raw encode(int x) { return __int2float_rn(x); }
  template <class T>
  DEVICE float round(T x) { return encode(x); }
};

struct TF32 {
  typedef float raw;
  DEVICE raw encode(float x) {
    u32 bits = __float_as_uint(x);
    return x != x ? x : __uint_as_float((bits + 0xfffu + ((bits >> 13) & 1)) & ~0x1fffu);
  }
  DEVICE raw encode(double x) { return encode(to_odd(x)); }
  DEVICE raw encode(int x) { return encode(static_cast<double>(x)); }
  DEVICE float decode(raw x) { return encode(x); }
  template <class T>
  DEVICE float round(T x) { return encode(x); }
};

struct BF16 {
  typedef u16 raw;
  DEVICE float decode(raw x) { return __uint_as_float(static_cast<u32>(x) << 16); }
  DEVICE raw encode(float x) {
    return cvt_bf16(x);
  }
  DEVICE raw encode(double x) { return encode(to_odd(x)); }
  DEVICE raw encode(int x) { return encode(static_cast<double>(x)); }
  template <class T>
  DEVICE float round(T x) { return decode(encode(x)); }
  // Two of them, the first in the low half.
  DEVICE u32 pair(float low, float high) { return cvt_bf16_pair(low, high); }
  DEVICE float half(u32 pair, int second) { return __uint_as_float(second ? pair & 0xffff0000u : pair << 16); }
  DEVICE u32 max_pair(u32 a, u32 b) { return max_bf16_pair(a, b); }
  DEVICE u32 min_pair(u32 a, u32 b) { return min_bf16_pair(a, b); }
};

struct F16 {
  typedef u16 raw;
  DEVICE float decode(raw x) { return from_f16(x); }
  DEVICE raw encode(float x) {
    return cvt_f16(x);
  }
  DEVICE raw encode(double x) { return encode(to_odd(x)); }
  DEVICE raw encode(int x) { return encode(static_cast<double>(x)); }
  template <class T>
  DEVICE float round(T x) { return decode(encode(x)); }
  DEVICE u32 pair(float low, float high) { return cvt_f16_pair(low, high); }
  DEVICE float half(u32 pair, int second) { return decode(static_cast<u16>(second ? pair >> 16 : pair)); }
  DEVICE u32 max_pair(u32 a, u32 b) { return max_f16_pair(a, b); }
  DEVICE u32 min_pair(u32 a, u32 b) { return min_f16_pair(a, b); }
};

// OCP 8-bit floating point, revision 1.0: finite values beyond 448 become 448, infinities and NaN the NaN.
struct E4M3 {
  typedef u8 raw;
  DEVICE float decode(raw x) {
    u32 m = x & 0x7fu;
    // With its exponent and mantissa an f16 is a 256th of it, below the smallest normal number too.
    float f = from_f16(static_cast<u16>((x & 0x80u) << 8 | m << 7)) * 256.0f;
    return m == 0x7fu ? nan_() : f;
  }
  DEVICE raw encode(float x) {
    u32 sign = (__float_as_uint(x) >> 24) & 0x80u;
    float a = fabsf(x);
    return static_cast<raw>(sign | (!(a < inf()) ? 0x7fu : a >= 448.0f ? 0x7eu : pack_magnitude<4, 3>(x)));
  }
  DEVICE raw encode(double x) { return fabs(x) < static_cast<double>(inf()) ? encode(to_odd(x)) : encode(nan_()); }
  DEVICE raw encode(int x) { return encode(static_cast<double>(x)); }
  template <class T>
  DEVICE float round(T x) { return decode(encode(x)); }
};

struct E5M2 {
  typedef u8 raw;
  DEVICE float decode(raw x) { return F16::decode(static_cast<u16>(x << 8)); }
  DEVICE raw encode(float x) {
    u32 sign = (__float_as_uint(x) >> 24) & 0x80u;
    float a = fabsf(x);
    return static_cast<raw>(sign | (x != x ? 0x7eu : a >= 65536.0f ? 0x7cu : pack_magnitude<5, 2>(x)));
  }
  DEVICE raw encode(double x) { return encode(to_odd(x)); }
  DEVICE raw encode(int x) { return encode(static_cast<double>(x)); }
  template <class T>
  DEVICE float round(T x) { return decode(encode(x)); }
};

// Integers: to nearest even, to the nearest bound, NaN to 0 (both as cvt.rni does it).
template <class Raw, int LOW, int HIGH>
struct Integer {
  typedef Raw raw;
  DEVICE int clamp(int x) { return x < LOW ? LOW : x > HIGH ? HIGH : x; }
  DEVICE int decode(raw x) { return clamp(static_cast<int>(x)); }
  DEVICE int round(int x) { return clamp(x); }
  DEVICE int round(float x) { return x != x ? 0 : clamp(__float2int_rn(x)); }
  DEVICE int round(double x) { return x != x ? 0 : clamp(__double2int_rn(x)); }
  template <class T>
  DEVICE raw encode(T x) { return static_cast<raw>(round(x)); }
};
typedef Integer<int, -2147483647 - 1, 2147483647> I32;
typedef Integer<short, -32768, 32767> I16;
typedef Integer<signed char, -128, 127> I8;
typedef Integer<signed char, -8, 7> I4;
typedef Integer<u8, 0, 255> U8;
typedef Integer<u8, 0, 15> U4;

struct B1 {
  typedef u8 raw;
  DEVICE float decode(raw x) { return x != 0 ? 1.0f : 0.0f; }
  template <class T>
  DEVICE raw encode(T x) { return x != 0; }
  template <class T>
  DEVICE float round(T x) { return x != 0 ? 1.0f : 0.0f; }
};

// ---- Functions --------------------------------------------------------------------------------------------------

// exp(x) to 2^-20 or so: a multiplication and the exp unit. For results that are rounded to 11 bits or fewer.
DEVICE float exp_short(float x) { return ex2(x * 1.4426950408889634f); }
// exp(x - y) likewise: the scaling by log2(e) is fused with the subtraction, and y's part is loop-invariant. Where both
// are infinite with one sign the result is NaN, as exp(x - y) is. A y that the scaling would make infinite (the largest of
// scores that were masked with the lowest number) is scaled by less: numbers so large differ by nothing or by so much that
// the exponential is 0 or infinite either way.
DEVICE float exp_short_difference(float x, float y) {
  const float scale = fabsf(y) > 0x1p127f ? 0.25f : 1.4426950408889634f;
  return ex2(fmaf(x, scale, -(y * scale)));
}
// exp(x * c - y) likewise, given c * log2(e). Numbers so large that scaling them overflows stay finite, so that an x of
// -inf gives 0 beside them; others of that size carry roundings that are far larger than 1.
DEVICE float exp_short_scaled(float x, float scale, float y) {
  return ex2(fmaf(x, scale, -multiply_down(y, 1.4426950408889634f)));
}

// a / b to 1 ulp where the quotient is normal, without the branches of a full division: rows are divided by one number,
// whose part of the work the compiler takes out of the loop. Divisors are brought near 1 by powers of two first.
DEVICE float divide(float a, float b) {
  float m = fabsf(b);
  float scale = m > 0x1p64f ? 0x1p-64f : m < 0x1p-64f ? 0x1p64f : 1.0f;
  float r = reciprocal(b * scale);
  float q = (a * scale) * r;
  float error = fmaf(-(b * scale), q, a * scale);
  // Not finite where the divisor is 0 or infinite, or the quotient is: then q is right already.
  return fabsf(error) < __int_as_float(0x7f800000) ? fmaf(error, r, q) : q;
}
DEVICE double divide(double a, double b) { return a / b; }
// a / b to 2^-22: without the correction.
DEVICE float divide_short(float a, float b) {
  float m = fabsf(b);
  float scale = m > 0x1p64f ? 0x1p-64f : m < 0x1p-64f ? 0x1p64f : 1.0f;
  return (a * scale) * reciprocal(b * scale);
}

// The larger and the smaller; a NaN stays.
DEVICE double max_(double a, double b) { return a != a || a > b ? a : b; }
DEVICE double min_(double a, double b) { return a != a || a < b ? a : b; }

DEVICE float exp_(float x) { return expf(x); }
DEVICE double exp_(double x) { return exp(x); }
DEVICE float exp2_(float x) { return exp2f(x); }
DEVICE double exp2_(double x) { return exp2(x); }
DEVICE float log_(float x) { return logf(x); }
DEVICE double log_(double x) { return log(x); }
DEVICE float log2_(float x) { return log2f(x); }
DEVICE double log2_(double x) { return log2(x); }
DEVICE float log1p_(float x) { return log1pf(x); }
DEVICE double log1p_(double x) { return log1p(x); }
DEVICE float sqrt_(float x) { return sqrtf(x); }
DEVICE double sqrt_(double x) { return sqrt(x); }
DEVICE float rsqrt_(float x) { return 1.0f / sqrtf(x); }
DEVICE double rsqrt_(double x) { return 1.0 / sqrt(x); }
DEVICE float tanh_(float x) { return tanhf(x); }
// tanh(x) within 9 ulp, at most 1: x p(x^2) / q(x^2), which the CPU backend computes too (there it is said how p and q were
// found); where it rounds to 1 it stays what it is at 9.02. One instruction of the special functions' unit, not two.
DEVICE float tanh_short(float x) {
  const float y = min_(fabsf(x), 9.02f), z = y * y;
  float over = fmaf(z, 7.7902337e-7f, 3.2885143e-4f);
  float under = fmaf(z, 1.3384255e-8f, 2.0635793e-5f);
  over = fmaf(z, over, 2.5884353e-2f);
  under = fmaf(z, under, 3.4974557e-3f);
  over = fmaf(z, over, 4.6716008e-1f);
  under = fmaf(z, under, 1.3382685e-1f);
  over = fmaf(z, over, 1.0f);
  under = fmaf(z * y, under, y);
  return copysignf(min_(under * reciprocal(over), 1.0f), x);
}
DEVICE double tanh_(double x) { return tanh(x); }
DEVICE float erf_(float x) { return erff(x); }
DEVICE double erf_(double x) { return erf(x); }
DEVICE float sin_(float x) { return sinf(x); }
DEVICE double sin_(double x) { return sin(x); }
DEVICE float cos_(float x) { return cosf(x); }
DEVICE double cos_(double x) { return cos(x); }
DEVICE float floor_(float x) { return floorf(x); }
DEVICE double floor_(double x) { return floor(x); }
DEVICE float round_(float x) { return rintf(x); }
DEVICE double round_(double x) { return rint(x); }
DEVICE float abs_(float x) { return fabsf(x); }
DEVICE double abs_(double x) { return fabs(x); }
DEVICE float pow_(float x, float y) { return powf(x, y); }
DEVICE double pow_(double x, double y) { return pow(x, y); }
// A constant to the power of y, of its logarithm in two parts, within 4 ulp: what the product with the first part loses is
// multiplied afterwards. A library's function, which finds the logarithm, takes some eighty instructions.
DEVICE float power_of(float y, float high, float low) {
  const float n = y * high, power = exp2f(n);
  const float more = fmaf(y, low, fmaf(y, high, -n));
  return fabsf(n) < 128.0f ? fmaf(power, more * 0.69314718f, power) : power;
}
// N factors, 2 to 4.
template <int N, class T>
DEVICE T power_(T x) {
  const T square = x * x;
  return N == 2 ? square : N == 3 ? square * x : square * square;
}
template <class T>
DEVICE T sigmoid_(T x) { return divide(T(1), T(1) + exp_(-x)); }
template <class T>
DEVICE T silu_(T x) { return x * sigmoid_(x); }
DEVICE float sigmoid_short(float x) { return divide_short(1.0f, 1.0f + exp_short(-x)); }
DEVICE float silu_short(float x) { return x * sigmoid_short(x); }
template <class T>
DEVICE T gelu_(T x) { return T(0.5) * x * (T(1) + erf_(x * T(0.70710678118654752440))); }
template <class T>
DEVICE T relu_(T x) { return x < T(0) ? T(0) : x; }
template <class T>
DEVICE T sign_(T x) { return x > T(0) ? T(1) : x < T(0) ? T(-1) : x; }

// ---- Shared memory ----------------------------------------------------------------------------------------------

// Where byte `at` of a row begins: rows of PITCH bytes in chunks of 16, the chunk combined with bits of the row.
template <int PITCH, int SHIFT, int MASK>
DEVICE int place(int row, int at) {
  if (MASK == 0) return row * PITCH + at;
  return row * PITCH + (((at >> 4) ^ ((row >> SHIFT) & MASK)) << 4) + (at & 15);
}

// Bytes of four rows become bytes of four columns.
DEVICE void transpose_bytes(u32 (&x)[4]) {
  const u32 a = __byte_perm(x[0], x[1], 0x5140), b = __byte_perm(x[2], x[3], 0x5140);
  const u32 c = __byte_perm(x[0], x[1], 0x7362), d = __byte_perm(x[2], x[3], 0x7362);
  x[0] = __byte_perm(a, b, 0x5410);
  x[1] = __byte_perm(a, b, 0x7632);
  x[2] = __byte_perm(c, d, 0x5410);
  x[3] = __byte_perm(c, d, 0x7632);
}

// From a place of a row, `bytes` on, where they are whole chunks and have no bit in common with the place's own: the bits
// that take part in the combination are combined, the others added.
template <int MASK>
DEVICE u32 along(u32 from, int bytes) {
  return (from ^ (bytes & (MASK << 4))) + (bytes & ~(MASK << 4));
}

// A pair with halves replaced by 0.
DEVICE u32 keep_halves(u32 pair, bool low, bool high) { return pair & ((low ? 0xffffu : 0u) | (high ? 0xffff0000u : 0u)); }
