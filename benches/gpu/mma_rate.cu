// The rate of bf16 matrix products when nothing else is in the way: two warpgroups per multiprocessor multiply tiles that
// stay in shared memory (wgmma m64n256k16, random values). Prints TFLOP/s, the median of 15 runs of a few milliseconds.
//
//     nvcc -gencode=arch=compute_90a,code=sm_90a -O3 -o mma_rate mma_rate.cu && ./mma_rate
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

constexpr int GROUPS = 2, ROUNDS = 4000, ROWS = 64, COLUMNS = 256, DEPTH = 64;
constexpr int A_BYTES = ROWS * DEPTH * 2, B_BYTES = COLUMNS * DEPTH * 2;
constexpr int SHARED = GROUPS * A_BYTES + B_BYTES + 1024;

#define ROW8(r) "+f"(d[r]), "+f"(d[r + 1]), "+f"(d[r + 2]), "+f"(d[r + 3]), "+f"(d[r + 4]), "+f"(d[r + 5]), "+f"(d[r + 6]), "+f"(d[r + 7])
#define ROW32(r) ROW8(r), ROW8(r + 8), ROW8(r + 16), ROW8(r + 24)

// Rows of 128 bytes, swizzled over 128 bytes; groups of 8 rows are 1024 bytes apart (PTX ISA, "Matrix Descriptor Format").
__device__ uint64_t descriptor(uint32_t address) {
    return uint64_t((address & 0x3ffff) >> 4) | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

__device__ void multiply(float (&d)[128], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
        "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
        "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
        "}, %128, %129, 1, 1, 1, 0, 0;"
        : ROW32(0), ROW32(32), ROW32(64), ROW32(96)
        : "l"(a), "l"(b));
}

__global__ void __launch_bounds__(128 * GROUPS) rate(const uint32_t* values, float* out) {
    extern __shared__ char raw[];
    uint32_t base = uint32_t(__cvta_generic_to_shared(raw));
    char* tiles = raw + (1024 - base % 1024) % 1024;
    for (int i = threadIdx.x; i < (GROUPS * A_BYTES + B_BYTES) / 4; i += blockDim.x) reinterpret_cast<uint32_t*>(tiles)[i] = values[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    uint32_t at = uint32_t(__cvta_generic_to_shared(tiles));
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    uint64_t a = descriptor(at + group * A_BYTES), b = descriptor(at + GROUPS * A_BYTES);
    float d[128] = {};
    for (int round = 0; round < ROUNDS; round++) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) multiply(d, a + 2 * k, b + 2 * k);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    float sum = 0;
    for (int i = 0; i < 128; i++) sum += d[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

#define CHECK(call)                                                             \
    if (cudaError_t error = (call); error != cudaSuccess) {                     \
        fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));          \
        return 1;                                                               \
    }

int main() {
    int blocks = 0;
    CHECK(cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, 0));
    // Two numbers of either sign in [1/2, 2) a word: random mantissas, exponents near 0.
    std::vector<uint32_t> words((GROUPS * A_BYTES + B_BYTES) / 4);
    uint64_t state = 0x9e3779b97f4a7c15;
    for (uint32_t& word : words) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;  // xorshift64 (G. Marsaglia, 2003)
        auto number = [](uint32_t bits) { return (bits & 0x80ff) | (bits & 0x4000 ? 0x3f00 : 0x3f80); };
        word = number(uint32_t(state)) | number(uint32_t(state >> 32)) << 16;
    }
    uint32_t* values;
    float* out;
    CHECK(cudaMalloc(&values, words.size() * 4));
    CHECK(cudaMalloc(&out, size_t(blocks) * 128 * GROUPS * 4));
    CHECK(cudaMemcpy(values, words.data(), words.size() * 4, cudaMemcpyHostToDevice));
    CHECK(cudaFuncSetAttribute(rate, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED));
    cudaEvent_t start, end;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    std::vector<float> times;
    for (int run = 0; run < 25; run++) {
        CHECK(cudaEventRecord(start));
        rate<<<blocks, 128 * GROUPS, SHARED>>>(values, out);
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        float milliseconds;
        CHECK(cudaEventElapsedTime(&milliseconds, start, end));
        if (run >= 10) times.push_back(milliseconds);
    }
    std::sort(times.begin(), times.end());
    double operations = 2.0 * ROWS * COLUMNS * DEPTH * GROUPS * ROUNDS * blocks;
    printf("%.1f\n", operations / times[times.size() / 2] / 1e9);
}
