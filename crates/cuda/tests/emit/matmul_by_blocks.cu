//
//   kernel matmul(A, B → C)   grid n by 128, m by 64
//     by blocks of m:576 n:500 in L2
//     acc = 0
//     stream k by 64
//       a = load A[m:64, k:64]
//       b = load B[k:64, n:128]
//       sum = acc + mma a · b
//       acc = sum
//     store C[m:64, n:128] = acc
extern "C" __global__ void __launch_bounds__(128) matmul_0(const BF16::raw* __restrict__ A, const BF16::raw* __restrict__ B, BF16::raw* __restrict__ C, Status* __restrict__ status) {
  extern __shared__ __align__(1024) u8 shared[];
  const u32 shared_base = shared_address(shared);
  const int thread = threadIdx.x;
  const int lane = thread % 32;
  u32 point = blockIdx.x;
  const u32 n_first = point / (16u * 4u) * 4u;
  point -= n_first * (16u);
  const u32 n_many = min_u32(4u, 4u - n_first);
  const u32 m_first = point / (1u * n_many * 9u) * 9u;
  point -= m_first * (1u * n_many);
  const u32 m_many = min_u32(9u, 16u - m_first);
  const int m_base = static_cast<int>((m_first + point % m_many) % 16u) * 64;
  const int m_len = min_int(64, 1000 - m_base);
  point /= m_many;
  const int n_base = static_cast<int>((n_first + point % n_many) % 4u) * 128;
  const int n_len = min_int(128, 500 - n_base);
  point /= n_many;
  const int m_at = thread / 4 % 8;  // down: 8 of 64 positions
  const int n_at = thread / 32 % 4 * 32 + thread % 4 * 2;  // across: 8 of 128 positions
  float acc[8][8];
  #pragma unroll
  for (int i = 0; i < 8; ++i) {
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      acc[i][j] = 0.0f;
    }
  }
  {
    constexpr int k_1_begin = 0, k_1_end = 300;
    const auto k_1_fetch = [&](const int k_1_base, const int stage) {
      const int k_1_len = min_int(64, k_1_end - k_1_base);
      // a = load A[m:64, k:64]
      {
        const BF16::raw* const from = A + (static_cast<i64>(m_base) * 300 + static_cast<i64>(k_1_base));
        const u32 to = shared_base + 0 + stage * 8192;
        const int own = pinned<128>(thread);
        const int row = own / 16, column = own % 16 * 4;
        const BF16::raw* const start = from + row * 300 + column;
        const u32 into = to + place<128, 0, 7>(row, column * 2);
        #pragma unroll
        for (int e = 0; e < 8; ++e) {
          copy_async<8>(into + e * 1024, start + e * 2400, row + e * 8 < m_len ? max_int(0, min_int(4, k_1_len - column)) * 2 : 0);
        }
      }
      // b = load B[k:64, n:128]
      {
        const BF16::raw* const from = B + (static_cast<i64>(k_1_base) * 500 + static_cast<i64>(n_base));
        const u32 to = shared_base + 24576 + stage * 16384;
        #pragma unroll 4
        for (int e = pinned<128>(thread); e < 2048; e += 128) {
          const int row = e / 32, column = e % 32 * 4;
          copy_async<8>(to + place<256, 0, 7>(row, column * 2), from + row * 500 + column, row < k_1_len ? max_int(0, min_int(4, n_len - column)) * 2 : 0);
        }
      }
    };
    #pragma unroll
    for (int stage = 0; stage < 2; ++stage) {
      const int ahead = k_1_begin + stage * 64;
      if (ahead < k_1_end) k_1_fetch(ahead, stage);
      copies_commit();
    }
    const auto k_1_chunk = [&](auto , const int k_1_base, const int k_1_len, const int k_1_stage) {
      // a = load A[m:64, k:64]
      // b = load B[k:64, n:128]
      // sum = acc + mma a · b
      {
        const int own = pinned<32>(lane);
        const u32 left_from = shared_base + (0 + k_1_stage * 8192) + place<128, 0, 7>(0 + own % 16, own / 16 * 16);
        const u32 right_from = shared_base + (24576 + k_1_stage * 16384) + place<256, 0, 7>(own % 16, ((thread / 32 % 4 * 32) + own / 16 * 8) * 2);
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
          u32 left[4][4];
          #pragma unroll
          for (int x = 0; x < 4; ++x) {
            load_matrices(left[x], along<7>(left_from, k * 32) + x * 2048);
          }
          #pragma unroll
          for (int y = 0; y < 2; ++y) {
            u32 right[4];
            load_matrices_transposed(right, along<7>(right_from, y * 32) + k * 4096);
            #pragma unroll
            for (int x = 0; x < 4; ++x) {
              mma_bf16(&acc[2 * x][4 * y], &acc[2 * x + 1][4 * y], left[x], right[0], right[1]);
              mma_bf16(&acc[2 * x][4 * y + 2], &acc[2 * x + 1][4 * y + 2], left[x], right[2], right[3]);
            }
          }
        }
      }
    };
    int k_1_stage = 0;
    #pragma unroll 1
    for (int k_1_base = k_1_begin; k_1_base < k_1_end; k_1_base += 64) {
      copies_wait<1>();
      __syncthreads();  // this chunk is there, and the one before it has been read
      if (k_1_base + 128 < k_1_end) k_1_fetch(k_1_base + 128, (k_1_stage + 2) % 3);
      copies_commit();
      const int k_1_len = min_int(64, k_1_end - k_1_base);
      k_1_chunk(Bool<false>(), k_1_base, k_1_len, k_1_stage);
      k_1_stage = k_1_stage + 1 == 3 ? 0 : k_1_stage + 1;
    }
  }
  // store C[m:64, n:128] = acc
  {
    BF16::raw* const to = C + (static_cast<i64>(m_base) * 500 + static_cast<i64>(n_base));
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      #pragma unroll
      for (int y = 0; y < 4; ++y) {
        Pack<u32, 1> pack;
        #pragma unroll
        for (int e = 0; e < 1; ++e) {
          float pair[2];
          #pragma unroll
          for (int part = 0; part < 2; ++part) {
            const int j = y * 2 + 2 * e + part;
            pair[part] = acc[i][j];
          }
          pack.x[e] = BF16::pair(pair[0], pair[1]);
        }
        if (m_at + i * 8 < m_len && n_at + y * 8 + 1 < n_len) store_words(to + (m_at + i * 8) * 500 + (n_at + y * 8), pack.x);
        else if (m_at + i * 8 < m_len) {
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            if (n_at + y * 8 + e < n_len) to[(m_at + i * 8) * 500 + (n_at + y * 8) + e] = static_cast<BF16::raw>(pack.x[e / 2] >> e % 2 * 16);
          }
        }
      }
    }
  }
}
