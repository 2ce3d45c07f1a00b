//
//   kernel attention(Q, K, V → O)   grid b, h, m by 128
//     q = load Q[b, h, m:128, :]
//     Mx, Z, O = -inf, 0, 0
//     stream n by 64 while n <= m
//       k = load K[b, h, n:64, :]
//       qk = mma q · kᵀ
//       s.raw = where(n <= m, qk, -inf)
//       mx.raw = max(n) s.raw
//       mx = max(Mx, mx.raw * 0.125)
//       p: bf16 = exp(s.raw * 0.125 - mx)
//       r = exp(Mx - mx)
//       zr = Z * r
//       z = zr + sum(n) p
//       v = load V[b, h, n:64, :]
//       or = O * r
//       o = or + mma p · v
//       Mx, Z, O = mx, z, o
//     o.2 = O / Z
//     store O[b, h, m:128, :] = o.2
extern "C" __global__ void __launch_bounds__(128) attention_0(const BF16::raw* __restrict__ Q, const BF16::raw* __restrict__ K, const BF16::raw* __restrict__ V, BF16::raw* __restrict__ O, Status* __restrict__ status) {
  extern __shared__ __align__(1024) u8 shared[];
  const u32 shared_base = shared_address(shared);
  const int thread = threadIdx.x;
  const int lane = thread % 32;
  u32 point = blockIdx.x;
  const int m_base = static_cast<int>(7u - (point % 8u)) * 128;
  const int m_len = min_int(128, 1000 - m_base);
  point /= 8u;
  const int h_base = static_cast<int>(point % 8u) * 1;
  point /= 8u;
  const int b_base = static_cast<int>(point % 2u) * 1;
  point /= 2u;
  const int m_at = thread / 32 % 4 * 32 + thread / 4 % 8;  // down: 4 of 128 positions
  const int e_1_at = thread % 4 * 2;  // across: 16 of 64 positions
  const int n_at = thread % 4 * 2;  // across: 16 of 64 positions
  // q = load Q[b, h, m:128, :]
  {
    const BF16::raw* const from = Q + (static_cast<i64>(b_base) * 512000 + static_cast<i64>(h_base) * 64000 + static_cast<i64>(m_base) * 64);
    const u32 to = shared_base + 0;
    const int own = thread;
    const int row = own / 8, column = own % 8 * 8;
    const BF16::raw* const start = from + row * 64 + column;
    const u32 into = to + place<128, 0, 7>(row, column * 2);
    #pragma unroll
    for (int e = 0; e < 8; ++e) {
      copy_async<16>(into + e * 2048, start + e * 1024, row + e * 16 < m_len ? 16 : 0);
    }
  }
  copies_commit();
  float Mx[4];
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    Mx[i] = (-inf());
  }
  float Z[4];
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    Z[i] = 0.0f;
  }
  float O_1[4][16];
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    #pragma unroll
    for (int j = 0; j < 16; ++j) {
      O_1[i][j] = 0.0f;
    }
  }
  {
    i64 n_low = 0, n_high = 1000;
    { const i64 high = static_cast<i64>((m_base + m_len - 1)) + 1; n_high = high < n_high ? high : n_high; }
    const int n_end = n_low < n_high ? static_cast<int>(n_high) : 0;
    const int n_begin = n_low < n_high ? static_cast<int>(n_low - n_low % 64) : 0;
    const auto n_fetch = [&](const int n_base, const int stage) {
      const int n_len = min_int(64, n_end - n_base);
      // k = load K[b, h, n:64, :]
      {
        const BF16::raw* const from = K + (static_cast<i64>(b_base) * 512000 + static_cast<i64>(h_base) * 64000 + static_cast<i64>(n_base) * 64);
        const u32 to = shared_base + 16384 + stage * 8192;
        const int own = pinned<128>(thread);
        const int row = own / 8, column = own % 8 * 8;
        const BF16::raw* const start = from + row * 64 + column;
        const u32 into = to + place<128, 0, 7>(row, column * 2);
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          copy_async<16>(into + e * 2048, start + e * 1024, row + e * 16 < n_len ? 16 : 0);
        }
      }
      // v = load V[b, h, n:64, :]
      {
        const BF16::raw* const from = V + (static_cast<i64>(b_base) * 512000 + static_cast<i64>(h_base) * 64000 + static_cast<i64>(n_base) * 64);
        const u32 to = shared_base + 49152 + stage * 8192;
        const int own = pinned<128>(thread);
        const int row = own / 8, column = own % 8 * 8;
        const BF16::raw* const start = from + row * 64 + column;
        const u32 into = to + place<128, 0, 7>(row, column * 2);
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          copy_async<16>(into + e * 2048, start + e * 1024, row + e * 16 < n_len ? 16 : 0);
        }
      }
    };
    #pragma unroll
    for (int stage = 0; stage < 3; ++stage) {
      const int ahead = n_begin + stage * 64;
      if (ahead < n_end) n_fetch(ahead, stage);
      copies_commit();
    }
    copies_wait<3>();
    __syncthreads();
    u32 q_held[4][2][4];
    {
      const int own = lane;
      const u32 left_from = shared_base + 0 + place<128, 0, 7>((thread / 32 % 4 * 32) + own % 16, own / 16 * 16);
      #pragma unroll
      for (int k = 0; k < 4; ++k) {
        #pragma unroll
        for (int x = 0; x < 2; ++x) {
          load_matrices(q_held[k][x], along<7>(left_from, k * 32) + x * 2048);
        }
      }
    }
    const auto n_chunk = [&](auto full, const int n_base, const int n_len, const int n_stage) {
      constexpr bool n_full = decltype(full)::value;
      // k = load K[b, h, n:64, :]
      // qk = mma q · kᵀ
      float qk[4][16];
      {
        const int own = pinned<32>(lane);
        const u32 right_from = shared_base + (16384 + n_stage * 8192) + place<128, 0, 7>(0 + own % 8 + own / 16 * 8, own / 8 % 2 * 16);
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
          const auto& left = q_held[k];
          #pragma unroll
          for (int y = 0; y < 4; ++y) {
            u32 right[4];
            load_matrices(right, along<7>(right_from, k * 32) + y * 2048);
            #pragma unroll
            for (int x = 0; x < 2; ++x) {
              if (k == 0) mma_bf16_zero(&qk[2 * x][4 * y], &qk[2 * x + 1][4 * y], left[x], right[0], right[1]);
              else mma_bf16(&qk[2 * x][4 * y], &qk[2 * x + 1][4 * y], left[x], right[0], right[1]);
              if (k == 0) mma_bf16_zero(&qk[2 * x][4 * y + 2], &qk[2 * x + 1][4 * y + 2], left[x], right[2], right[3]);
              else mma_bf16(&qk[2 * x][4 * y + 2], &qk[2 * x + 1][4 * y + 2], left[x], right[2], right[3]);
            }
          }
        }
      }
      // s.raw = where(n <= m, qk, -inf)
      float s_raw[4][16];
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
          s_raw[i][j] = (n_full || ((m_base + m_at) - (n_base + n_at) >= -(i * 8) + (j / 2 * 8 + j % 2))) ? qk[i][j] : (-inf());
        }
      }
      // mx.raw = max(n) s.raw
      float mx_raw[4];
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        float x = (-inf());
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
          x = max_(x, ((n_full || n_at + j / 2 * 8 + j % 2 < n_len) ? float(s_raw[i][j]) : (-inf())));
        }
        x = max_(x, __shfl_xor_sync(0xffffffffu, x, 1));
        x = max_(x, __shfl_xor_sync(0xffffffffu, x, 2));
        mx_raw[i] = x;
      }
      // mx = max(Mx, mx.raw * 0.125)
      float mx[4];
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        mx[i] = max_(Mx[i], mx_raw[i] * 0.125f);
      }
      // p: bf16 = exp(s.raw * 0.125 - mx)
      u32 p[4][8];
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int y = 0; y < 8; ++y) {
          float pair[2];
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int j = 2 * y + e;
            pair[e] = exp_short_scaled(s_raw[i][j], 0.18033688f, mx[i]);
          }
          p[i][y] = BF16::pair(pair[0], pair[1]);
        }
      }
      // r = exp(Mx - mx)
      float r[4];
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        r[i] = exp_(Mx[i] - mx[i]);
      }
      // zr = Z * r
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        Z[i] = Z[i] * r[i];
      }
      // z = zr + sum(n) p
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        float x = 0.0f;
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
          x = x + ((n_full || n_at + j / 2 * 8 + j % 2 < n_len) ? float(BF16::half(p[i][(j) / 2], (j) % 2)) : 0.0f);
        }
        Z[i] = float(Z[i]) + x;
      }
      // v = load V[b, h, n:64, :]
      // or = O * r
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
          O_1[i][j] = O_1[i][j] * r[i];
        }
      }
      // o = or + mma p · v
      {
        const int own = pinned<32>(lane);
        const u32 right_from = shared_base + (49152 + n_stage * 8192) + place<128, 0, 7>(own % 16, (0 + own / 16 * 8) * 2);
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
          u32 left[2][4];
          #pragma unroll
          for (int x = 0; x < 2; ++x) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              left[x][e] = keep_halves(p[2 * x + e % 2][2 * k + e / 2], (n_full || n_at + (4 * k + e / 2 * 2 + 0) / 2 * 8 + (4 * k + e / 2 * 2 + 0) % 2 < n_len), (n_full || n_at + (4 * k + e / 2 * 2 + 1) / 2 * 8 + (4 * k + e / 2 * 2 + 1) % 2 < n_len));
            }
          }
          #pragma unroll
          for (int y = 0; y < 4; ++y) {
            u32 right[4];
            load_matrices_transposed(right, along<7>(right_from, y * 32) + k * 2048);
            #pragma unroll
            for (int x = 0; x < 2; ++x) {
              mma_bf16(&O_1[2 * x][4 * y], &O_1[2 * x + 1][4 * y], left[x], right[0], right[1]);
              mma_bf16(&O_1[2 * x][4 * y + 2], &O_1[2 * x + 1][4 * y + 2], left[x], right[2], right[3]);
            }
          }
        }
      }
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        Mx[i] = mx[i];
      }
    };
    int n_stage = 0;
    const auto n_test = [&](const int n_base) {
      const int n_len = min_int(64, n_end - n_base);
      return n_len == 64 && m_base - (n_base + n_len - 1) >= 0;
    };
    int n_base = n_begin;
    while (n_base < n_end) {
      #pragma unroll 1
      for (; n_base < n_end && n_test(n_base); n_base += 64) {
        copies_wait<2>();
        __syncthreads();  // this chunk is there, and the one before it has been read
        if (n_base + 192 < n_end) n_fetch(n_base + 192, (n_stage + 3) % 4);
        copies_commit();
        const int n_len = min_int(64, n_end - n_base);
        n_chunk(Bool<true>(), n_base, n_len, n_stage);
        n_stage = n_stage + 1 == 4 ? 0 : n_stage + 1;
      }
      #pragma unroll 1
      for (; n_base < n_end && !n_test(n_base); n_base += 64) {
        copies_wait<2>();
        __syncthreads();  // this chunk is there, and the one before it has been read
        if (n_base + 192 < n_end) n_fetch(n_base + 192, (n_stage + 3) % 4);
        copies_commit();
        const int n_len = min_int(64, n_end - n_base);
        n_chunk(Bool<false>(), n_base, n_len, n_stage);
        n_stage = n_stage + 1 == 4 ? 0 : n_stage + 1;
      }
    }
  }
  // every thread's part of Z
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    float x = Z[i];
    x = x + __shfl_xor_sync(0xffffffffu, x, 1);
    x = x + __shfl_xor_sync(0xffffffffu, x, 2);
    Z[i] = x;
  }
  // o.2 = O / Z
  float o_1[4][16];
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    #pragma unroll
    for (int j = 0; j < 16; ++j) {
      o_1[i][j] = divide_short(O_1[i][j], Z[i]);
    }
  }
  // store O[b, h, m:128, :] = o.2
  {
    BF16::raw* const to = O + (static_cast<i64>(b_base) * 512000 + static_cast<i64>(h_base) * 64000 + static_cast<i64>(m_base) * 64);
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      #pragma unroll
      for (int y = 0; y < 8; ++y) {
        Pack<u32, 1> pack;
        #pragma unroll
        for (int e = 0; e < 1; ++e) {
          float pair[2];
          #pragma unroll
          for (int part = 0; part < 2; ++part) {
            const int j = y * 2 + 2 * e + part;
            pair[part] = o_1[i][j];
          }
          pack.x[e] = BF16::pair(pair[0], pair[1]);
        }
        if (m_at + i * 8 < m_len) store_words(to + (m_at + i * 8) * 64 + (e_1_at + y * 8), pack.x);
      }
    }
  }
}
