"""Kernels as they should be: bounds, barriers, vectors, shuffles, reductions, atomics, halves."""

KERNELS = r"""
extern "C" __global__ void __launch_bounds__(256)
add(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = x[i] + y[i];
}

// Four at a time, and what is left one by one.
extern "C" __global__ void __launch_bounds__(256) scale4(const float* x, float* out, float a, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (4 * i + 3 < n) {
        float4 v = *reinterpret_cast<const float4*>(x + 4 * i);
        v.x *= a; v.y *= a; v.z *= a; v.w *= a;
        *reinterpret_cast<float4*>(out + 4 * i) = v;
    } else {
        for (long long j = 4 * i; j < n; j++) out[j] = x[j] * a;
    }
}

struct alignas(16) Eight { float v[8]; };
extern "C" __global__ void scale8(const Eight* x, Eight* out) {
    Eight v = x[threadIdx.x];
    for (int i = 0; i < 8; i++) v.v[i] *= 2.0f;
    out[threadIdx.x] = v;
}

extern "C" __global__ void transpose(const float* x, float* out, int rows, int columns) {
    __shared__ float tile[16][17];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = x[row * columns + column];
    __syncthreads();
    row = blockIdx.x * 16 + threadIdx.y;
    column = blockIdx.y * 16 + threadIdx.x;
    if (row < columns && column < rows) out[row * rows + column] = tile[threadIdx.x][threadIdx.y];
}

__device__ __forceinline__ float warp_sum(float v) {
    for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_down_sync(0xffffffffu, v, offset);
    return v;
}

template <int WARPS>
__device__ float block_sum(float v) {
    __shared__ float parts[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    v = warp_sum(v);
    if (lane == 0) parts[warp] = v;
    __syncthreads();
    if (warp == 0) v = warp_sum(lane < WARPS ? parts[lane] : 0.0f);
    return v;
}

// Both stages of a sum: one partial result for each block, then one block over these.
extern "C" __global__ void __launch_bounds__(128) sum(const float* x, float* out, int n) {
    float v = 0.0f;
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) v += x[i];
    v = block_sum<4>(v);
    if (threadIdx.x == 0) out[blockIdx.x] = v;
}

// One block for each row, the row in shared memory.
extern "C" __global__ void __launch_bounds__(128) softmax(const float* x, float* out, int columns) {
    extern __shared__ __align__(16) float row[];
    __shared__ float parts[4];
    x += (long long)blockIdx.x * columns;
    out += (long long)blockIdx.x * columns;
    float most = -__int_as_float(0x7f800000);
    for (int i = threadIdx.x; i < columns; i += 128) most = fmaxf(most, row[i] = x[i]);
    for (int offset = 16; offset > 0; offset >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, offset));
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = most;
    __syncthreads();
    most = fmaxf(fmaxf(parts[0], parts[1]), fmaxf(parts[2], parts[3]));
    __syncthreads();
    float total = 0.0f;
    for (int i = threadIdx.x; i < columns; i += 128) total += row[i] = expf(row[i] - most);
    for (int offset = 16; offset > 0; offset >>= 1) total += __shfl_xor_sync(~0u, total, offset);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = total;
    __syncthreads();
    total = parts[0] + parts[1] + parts[2] + parts[3];
    for (int i = threadIdx.x; i < columns; i += 128) out[i] = row[i] / total;
}

extern "C" __global__ void histogram(const int* values, unsigned int* counts, int n) {
    __shared__ unsigned int own[16];
    if (threadIdx.x < 16) own[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&own[values[i]], 1u);
    }
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&counts[threadIdx.x], own[threadIdx.x]);
}

// A maximum of floats by compare and swap.
extern "C" __global__ void largest(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int* bits = reinterpret_cast<int*>(out);
    int seen = atomicAdd(bits, 0);
    while (__int_as_float(seen) < x[i]) {
        int before = atomicCAS(bits, seen, __float_as_int(x[i]));
        if (before == seen) break;
        seen = before;
    }
}

// The last block to arrive adds up what all wrote.
extern "C" __global__ void sum_at_once(const float* x, float* parts, unsigned int* arrived, float* out, int n) {
    __shared__ bool last;
    float v = 0.0f;
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) v += x[i];
    v = block_sum<4>(v);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = v;
        __threadfence();
        last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float total = 0.0f;
        for (int i = 0; i < gridDim.x; i++) total += parts[i];
        *out = total;
    }
}

template <class T> __device__ void copy_rounded(const float* x, T* out, float* back, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = T(x[i]);
        back[i] = float(out[i]);
    }
}
extern "C" __global__ void halves(const float* x, __half* out, float* back, int n) { copy_rounded(x, out, back, n); }
extern "C" __global__ void bfloats(const float* x, __nv_bfloat16* out, float* back, int n) {
    copy_rounded(x, out, back, n);
}

extern "C" __global__ void votes(const int* x, unsigned int* out) {
    int lane = threadIdx.x;
    unsigned mask = lane < 8 ? 0xffu : 0xffffff00u;
    unsigned ballot = __ballot_sync(mask, x[lane] > 0);
    bool any = __any_sync(mask, x[lane] > 0), all = __all_sync(mask, x[lane] > 0);
    int first = __shfl_sync(0xffffffffu, x[lane], 2, 8);
    int up = __shfl_up_sync(0xffffffffu, x[lane], 1);
    out[5 * lane] = ballot;
    out[5 * lane + 1] = any + 2 * all;
    out[5 * lane + 2] = first;
    out[5 * lane + 3] = up;
    int first_count = __syncthreads_count(x[lane] > 0);
    out[5 * lane + 4] = 100 * first_count + __syncthreads_count(x[lane] > 1);
}

extern "C" __global__ void order(int* tickets, int* next) {
    tickets[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(next, 1);
}

extern "C" __global__ void doubled(float* __restrict__ x) { x[threadIdx.x] *= 2.0f; }

extern "C" __global__ void half_goes_home(int* out) {
    __shared__ int line[16];
    int lane = threadIdx.x;
    if (lane >= 16) return;
    line[lane] = lane;
    __syncwarp();
    out[lane] = line[15 - lane];
}

// Warps work in shared memory with no barrier but their own.
extern "C" __global__ void warp_scan(int* x) {
    __shared__ int line[64];
    int t = threadIdx.x, lane = t % 32;
    line[t] = x[t];
    __syncwarp();
    for (int offset = 1; offset < 32; offset *= 2) {
        int add = lane >= offset ? line[t - offset] : 0;
        __syncwarp();
        line[t] += add;
        __syncwarp();
    }
    x[t] = line[t];
}

struct Geometry { int rows, columns; float scale; };
__constant__ float table[4] = {1.0f, 2.0f, 3.0f, 4.0f};
extern "C" __global__ void structured(const float* x, float* out, const Geometry g) {
    int i = threadIdx.x;
    if (i < g.rows * g.columns) out[i] = __ldg(x + i) * g.scale + table[i % 4];
}

extern "C" __global__ void bits(const unsigned int* x, unsigned int* out) {
    unsigned int v = x[threadIdx.x];
    unsigned int* row = out + 6 * threadIdx.x;
    row[0] = __popc(v); row[1] = __clz(v); row[2] = __ffs(v);
    row[3] = __umulhi(v, 0x9e3779b9u); row[4] = __brev(v); row[5] = __funnelshift_l(v, 5u, 3);
}
"""
