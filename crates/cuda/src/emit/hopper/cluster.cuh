
// Blocks of a cluster. PTX ISA, "Cluster of cooperative thread arrays".

DEVICE u32 block_of_cluster() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// All threads of all blocks; what they wrote before can be seen by all.
DEVICE void blocks_meet() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// Arrives on the barrier that lies there in the shared memory of another block, or of this one. A release at the scope of
// the cluster would flush all memory (MEMBAR.ALL.GPU) in every chunk. What has to be over are reads of the stage, and the
// products have been waited for; CUTLASS (ClusterBarrier::arrive) leaves the scope out, too.
DEVICE void barrier_arrive_at_block(u32 barrier, u32 block) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(barrier),
      "r"(block)
      : "memory");
}
// As bulk_copy, to the same place in all blocks whose bit is set; the barrier at the same place of each counts the bytes.
DEVICE void bulk_copy_to_blocks(u32 to, const TensorMap& map, u32 barrier, u16 blocks, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%4, %5}], [%2], %3;" ::"r"(to),
      "l"(&map), "r"(barrier), "h"(blocks), "r"(c0), "r"(c1)
      : "memory");
}
DEVICE void bulk_copy_to_blocks(u32 to, const TensorMap& map, u32 barrier, u16 blocks, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%4, %5, %6}], [%2], %3;" ::"r"(to),
      "l"(&map), "r"(barrier), "h"(blocks), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}
DEVICE void bulk_copy_to_blocks(u32 to, const TensorMap& map, u32 barrier, u16 blocks, int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(to),
      "l"(&map), "r"(barrier), "h"(blocks), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
DEVICE void bulk_copy_to_blocks(u32 to, const TensorMap& map, u32 barrier, u16 blocks, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%4, %5, %6, %7, %8}], [%2], %3;" ::"r"(to),
      "l"(&map), "r"(barrier), "h"(blocks), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}
