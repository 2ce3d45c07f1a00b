// Instructions of sm_90a: barriers in shared memory, bulk tensor copies, products of warpgroups.

// What the copy engine needs to know of a tensor; made by the run time, never looked into.
struct alignas(64) TensorMap {
  u64 words[16];
};

// Barriers that count arrivals and bytes. PTX ISA, "mbarrier".
DEVICE void barrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
DEVICE void barriers_visible() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
DEVICE void barrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Until the phase of this parity has completed.
DEVICE void barrier_wait(u32 barrier, u32 parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra.uni over;\n"
      "bra.uni again;\n"
      "over:\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Named barriers among whole warps.
DEVICE void turn_take(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
DEVICE void turn_pass(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Register j of lane t of four lanes becomes register t of lane j.
DEVICE void exchange_quad(u32 (&r)[4], int lane) {
  const bool odd = lane & 1, high = lane & 2;
  u32 a = __shfl_xor_sync(0xffffffff, odd ? r[0] : r[1], 1);
  u32 b = __shfl_xor_sync(0xffffffff, odd ? r[2] : r[3], 1);
  if (odd) {
    r[0] = a, r[2] = b;
  } else {
    r[1] = a, r[3] = b;
  }
  a = __shfl_xor_sync(0xffffffff, high ? r[0] : r[2], 2);
  b = __shfl_xor_sync(0xffffffff, high ? r[1] : r[3], 2);
  if (high) {
    r[0] = a, r[1] = b;
  } else {
    r[2] = a, r[3] = b;
  }
}
DEVICE void store_16(void* to, const u32 (&r)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// Registers of this warpgroup's threads.
template <int N>
DEVICE void registers_fewer() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N>
DEVICE void registers_more() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

// Boxes of a tensor into shared memory; the barrier counts their bytes. The innermost coordinate comes first.
DEVICE void bulk_prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
DEVICE void bulk_copy(u32 to, const TensorMap& map, u32 barrier, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          to),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1)
      : "memory");
}
DEVICE void bulk_copy(u32 to, const TensorMap& map, u32 barrier, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}
DEVICE void bulk_copy(u32 to, const TensorMap& map, u32 barrier, int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
DEVICE void bulk_copy(u32 to, const TensorMap& map, u32 barrier, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, "
      "%7}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// Products of a warpgroup. Between the fence and the wait their registers belong to them.
DEVICE void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
DEVICE void products_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
// Keeps the compiler from moving what reads or writes these registers to the other side.
template <int M, int N>
DEVICE void pin(float (&d)[M][N]) {
#pragma unroll
  for (int i = 0; i < M; ++i) {
#pragma unroll
    for (int j = 0; j < N; ++j) asm volatile("" : "+f"(d[i][j])::"memory");
  }
}
// What x is computed from is computed before the waits that follow: a store that never happens stays where it is.
DEVICE void hold(float x, u32 shared_base) {
  asm volatile(
      "{\n"
      ".reg .pred never;\n"
      "setp.gt.f32 never, %0, 0f7F800000;\n"
      "@never st.shared.f32 [%1], %0;\n"
      "}" ::"f"(x),
      "r"(shared_base)
      : "memory");
}
template <int N>
DEVICE void pin(u32 (&a)[N][4]) {
#pragma unroll
  for (int k = 0; k < N; ++k) asm volatile("" : "+r"(a[k][0]), "+r"(a[k][1]), "+r"(a[k][2]), "+r"(a[k][3])::"memory");
}
// What wgmma wants to know of a tile in shared memory. PTX ISA, "Matrix descriptor": addresses in units of 16 bytes.
DEVICE u64 matrix(u32 address, u32 leading, u32 stride, u32 swizzle) {
  return static_cast<u64>((address & 0x3FFFF) >> 4) | static_cast<u64>(leading >> 4) << 16 |
         static_cast<u64>(stride >> 4) << 32 | static_cast<u64>(swizzle) << 62;
}
// Where a byte of a panel of S-byte rows lies.
template <int S>
DEVICE u32 panel_place(u32 at) { return at ^ ((at % (8 * S)) >> 7 << 4); }
