// What threads that feed a matrix unit themselves reach: mma.sync m16n8k16 (bf16), alone and with what goes before it.
//
// Every warp multiplies ROWS x 16 rows by COLUMNS columns that lie in shared memory, in chunks of DEPTH, as a kernel's inner loop
// does: `alone`, fragments that stay in registers; `right`, the right factor by ldmatrix for every use; `both`, the left factor
// too. `phases` is the bare inner loop of attention: product, exponentials of its result, product by that, for 32 rows and 32
// columns a warp at head dimension 128, no barriers and no copies; each part can be left out. Prints cycles by the SM's own clock
// and the share of the unit's rate (2048 multiply-adds a cycle and SM), so that power and clocks do not matter.
//
//     nvcc -gencode=arch=compute_90,code=sm_90 -O3 -std=c++17 -o mma_feed mma_feed.cu && ./mma_feed
#include <cstdint>
#include <cstdio>
#include <vector>
#include <algorithm>

#define DEVICE static __device__ __forceinline__
typedef unsigned int u32;

DEVICE void ldmatrix(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
DEVICE void mma(float* c, const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE float ex2(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
DEVICE u32 pack(float a, float b) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
// A row of 16-bit elements is 16 bytes longer than its elements: eight rows lie in different banks.
template <int WIDTH> DEVICE u32 lane_address(u32 base) { return base + (threadIdx.x % 16) * (WIDTH * 2 + 16) + (threadIdx.x % 32) / 16 * 16; }

enum { ALONE, RIGHT, BOTH };
constexpr int DEPTH = 64, ROUNDS = 400;

template <int ROWS, int COLUMNS, int MODE>
__global__ void feed(const u32* values, float* out, long long* cycles) {
    extern __shared__ __align__(128) char shared[];
    constexpr int WIDTH = DEPTH;  // both factors lie as rows of DEPTH elements
    const u32 base = u32(__cvta_generic_to_shared(shared));
    const int words = (COLUMNS + 16 * ROWS * (blockDim.x / 32)) * (WIDTH * 2 + 16) / 4;
    for (int i = threadIdx.x; i < words; i += blockDim.x) reinterpret_cast<u32*>(shared)[i] = values[i % 4096];
    __syncthreads();
    const u32 right_at = lane_address<WIDTH>(base), left_at = lane_address<WIDTH>(base + (COLUMNS + 16 * ROWS * (threadIdx.x / 32)) * (WIDTH * 2 + 16));
    float sum[ROWS][COLUMNS / 8][4] = {};
    u32 left[ROWS][4], right[4];
    for (int r = 0; r < ROWS; r++) ldmatrix(left[r], left_at + r * 16 * (WIDTH * 2 + 16));
    ldmatrix(right, right_at);
    __syncthreads();
    const long long start = clock64();
#pragma unroll 1
    for (int round = 0; round < ROUNDS; round++) {
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) {
            if (MODE == BOTH) {
#pragma unroll
                for (int r = 0; r < ROWS; r++) ldmatrix(left[r], left_at + r * 16 * (WIDTH * 2 + 16) + k * 32);
            }
#pragma unroll
            for (int j = 0; j < COLUMNS / 16; j++) {
                if (MODE != ALONE) ldmatrix(right, right_at + j * 16 * (WIDTH * 2 + 16) + k * 32);
#pragma unroll
                for (int r = 0; r < ROWS; r++) mma(sum[r][2 * j], left[r], right[0], right[1]), mma(sum[r][2 * j + 1], left[r], right[2], right[3]);
            }
        }
    }
    const long long end = clock64();
    float all = 0;
    for (int r = 0; r < ROWS; r++) for (int j = 0; j < COLUMNS / 8; j++) for (int i = 0; i < 4; i++) all += sum[r][j][i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = all;
    if (threadIdx.x == 0) cycles[2 * blockIdx.x] = start, cycles[2 * blockIdx.x + 1] = end;
}

// Which parts of the inner loop of attention are there.
enum { PRODUCTS = 1, FRAGMENTS = 2, SCALARS = 4 };

template <int PARTS>
__global__ void __launch_bounds__(128) phases(const u32* values, float* out, long long* cycles, float scale) {
    extern __shared__ __align__(128) char shared[];
    constexpr int D = 128, N = 32, PITCH = D * 2 + 16;
    const u32 base = u32(__cvta_generic_to_shared(shared));
    // 128 rows of Q, 32 rows of K, and 128 rows of the transpose of V
    for (int i = threadIdx.x; i < 288 * PITCH / 4; i += blockDim.x) reinterpret_cast<u32*>(shared)[i] = values[i % 4096];
    __syncthreads();
    const u32 q_at = lane_address<D>(base + threadIdx.x / 32 * 32 * PITCH), k_at = lane_address<D>(base + 128 * PITCH), v_at = lane_address<D>(base + 160 * PITCH);
    float o[2][16][4] = {}, total = 0;
    u32 left[2][4], right[4];
    ldmatrix(left[0], q_at), ldmatrix(left[1], q_at + 16 * PITCH), ldmatrix(right, k_at);
    __syncthreads();
    const long long start = clock64();
#pragma unroll 1
    for (int round = 0; round < ROUNDS; round++) {
        float s[2][4][4];
#pragma unroll
        for (int i = 0; i < 32; i++) (&s[0][0][0])[i] = (PARTS & PRODUCTS) ? 0.0f : o[0][i / 4][i % 4] * scale;
        if (PARTS & (PRODUCTS | FRAGMENTS)) {
#pragma unroll
            for (int k = 0; k < D / 16; k++) {
                if (PARTS & FRAGMENTS) ldmatrix(left[0], q_at + k * 32), ldmatrix(left[1], q_at + 16 * PITCH + k * 32);
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    if (PARTS & FRAGMENTS) ldmatrix(right, k_at + j * 16 * PITCH + k * 32);
                    if (PARTS & PRODUCTS)
#pragma unroll
                        for (int r = 0; r < 2; r++) mma(s[r][2 * j], left[r], right[0], right[1]), mma(s[r][2 * j + 1], left[r], right[2], right[3]);
                    else total += __uint_as_float(right[0] ^ right[3] ^ left[0][0] ^ left[1][2]);
                }
            }
        }
        u32 p[2][8];
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float a = s[r][i / 2][i % 2 * 2], b = s[r][i / 2][i % 2 * 2 + 1];
                if (PARTS & SCALARS) {
                    float high = fmaxf(fmaxf(a, b), total * 1e-30f);
                    a = ex2(a * scale - high * scale), b = ex2(b * scale - high * scale);
                    total += a + b;
                }
                p[r][i] = pack(a, b);
            }
        if (PARTS & (PRODUCTS | FRAGMENTS)) {
#pragma unroll
            for (int k = 0; k < N / 16; k++)
#pragma unroll
                for (int j = 0; j < D / 16; j++) {
                    if (PARTS & FRAGMENTS) ldmatrix(right, v_at + j * 16 * PITCH + k * 32);
                    if (PARTS & PRODUCTS)
#pragma unroll
                        for (int r = 0; r < 2; r++) {
                            u32 a[4] = {p[r][4 * k], p[r][4 * k + 1], p[r][4 * k + 2], p[r][4 * k + 3]};
                            mma(o[r][2 * j], a, right[0], right[1]), mma(o[r][2 * j + 1], a, right[2], right[3]);
                        }
                    else total += __uint_as_float(right[0] ^ right[3] ^ p[0][k] ^ p[1][k]);
                }
        } else {
#pragma unroll
            for (int i = 0; i < 16; i++) o[0][i / 4][i % 4] += __uint_as_float(p[0][i % 8] ^ p[1][i % 8]);
        }
    }
    const long long end = clock64();
    for (int i = 0; i < 128; i++) total += (&o[0][0][0])[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
    if (threadIdx.x == 0) cycles[2 * blockIdx.x] = start, cycles[2 * blockIdx.x + 1] = end;
}

#define CHECK(call)                                                             \
    if (cudaError_t error = (call); error != cudaSuccess) {                     \
        fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));          \
        exit(1);                                                                \
    }

struct Card {
    int cores = 0;
    u32* values;
    float* out;
    long long* cycles;
    Card() {
        CHECK(cudaDeviceGetAttribute(&cores, cudaDevAttrMultiProcessorCount, 0));
        // Two numbers of either sign in [1/2, 2) a word, as in mma_rate.cu.
        std::vector<u32> words(4096);
        uint64_t state = 0x9e3779b97f4a7c15;
        for (u32& word : words) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;  // xorshift64 (G. Marsaglia, 2003)
            auto number = [](u32 bits) { return (bits & 0x80ff) | (bits & 0x4000 ? 0x3f00 : 0x3f80); };
            word = number(u32(state)) | number(u32(state >> 32)) << 16;
        }
        CHECK(cudaMalloc(&values, words.size() * 4));
        CHECK(cudaMalloc(&out, size_t(cores) * 8 * 1024 * 4));
        CHECK(cudaMalloc(&cycles, size_t(cores) * 8 * 16));
        CHECK(cudaMemcpy(values, words.data(), words.size() * 4, cudaMemcpyHostToDevice));
    }
    // Cycles from the first block's start to the last one's end for `blocks` blocks that share one SM: a grid of that many alone
    // would be spread, so every SM has as many, and what is reported is the median over the blocks.
    template <class K, class... A>
    double time(K kernel, int threads, int blocks, int shared, A... more) {
        CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
        int fit = 0;
        CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, kernel, threads, shared));
        if (fit < blocks) return 0;
        std::vector<double> medians;
        for (int run = 0; run < 7; run++) {
            kernel<<<cores * blocks, threads, shared>>>(values, out, cycles, more...);
            CHECK(cudaGetLastError());
            CHECK(cudaDeviceSynchronize());
            std::vector<long long> both(2 * cores * blocks);
            CHECK(cudaMemcpy(both.data(), cycles, both.size() * 8, cudaMemcpyDeviceToHost));
            std::vector<double> each;
            for (size_t i = 0; i < both.size(); i += 2) each.push_back(double(both[i + 1] - both[i]));
            std::sort(each.begin(), each.end());
            medians.push_back(each[each.size() / 2]);
        }
        std::sort(medians.begin() + 2, medians.end());
        return medians[4];
    }
};

template <int ROWS, int COLUMNS, int MODE>
void report(Card& card) {
    const char* names[] = {"alone", "right", "both"};
    for (int warps : {4, 8})
        for (int blocks : {1, 2, 3}) {
            const int shared = (COLUMNS + 16 * ROWS * warps) * (DEPTH * 2 + 16);
            const double cycles = card.time(feed<ROWS, COLUMNS, MODE>, 32 * warps, blocks, shared);
            if (cycles == 0) continue;
            const double chunks = double(ROUNDS) * warps * blocks;
            const double products = chunks * 16 * ROWS * COLUMNS * DEPTH / 2048;
            // One ldmatrix.x4 reads 512 bytes, of which an SM gives 128 a cycle.
            const int loads = (DEPTH / 16) * (MODE == ALONE ? 0 : COLUMNS / 16 + (MODE == BOTH ? ROWS : 0));
            printf("%s rows %d columns %d warps %d blocks %d: %.0f cycles, unit %.3f, shared memory %.3f\n", names[MODE], 16 * ROWS, COLUMNS, warps, blocks,
                   cycles / ROUNDS, products / cycles, chunks * loads * 4 / cycles);
        }
}

template <int PARTS>
void report_phases(Card& card) {
    const int shared = 288 * (128 * 2 + 16);
    for (int blocks : {1, 2}) {
        const double cycles = card.time(phases<PARTS>, 128, blocks, shared, 0.01f);
        if (cycles == 0) continue;
        const double chunks = double(ROUNDS) * 4 * blocks;
        printf("phases%s%s%s blocks %d: %.0f cycles, %.0f a block; unit %.3f, shared memory %.3f\n", PARTS & PRODUCTS ? " products" : "",
               PARTS & FRAGMENTS ? " fragments" : "", PARTS & SCALARS ? " scalars" : "", blocks, cycles / ROUNDS, cycles / ROUNDS / blocks,
               PARTS & PRODUCTS ? chunks * 128 / cycles : 0.0, PARTS & FRAGMENTS ? chunks * 48 * 4 / cycles : 0.0);
    }
}

int main() {
    Card card;
    report<1, 64, ALONE>(card), report<2, 64, ALONE>(card), report<2, 128, ALONE>(card), report<4, 64, ALONE>(card);
    report<1, 64, RIGHT>(card), report<2, 64, RIGHT>(card), report<2, 128, RIGHT>(card), report<4, 64, RIGHT>(card);
    report<1, 64, BOTH>(card), report<2, 64, BOTH>(card), report<2, 128, BOTH>(card), report<4, 64, BOTH>(card);
    report_phases<PRODUCTS>(card), report_phases<FRAGMENTS>(card), report_phases<SCALARS>(card);
    report_phases<PRODUCTS | FRAGMENTS>(card), report_phases<PRODUCTS | SCALARS>(card), report_phases<PRODUCTS | FRAGMENTS | SCALARS>(card);
}
