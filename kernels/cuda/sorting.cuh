// Positions in sorted order. Numbers become words whose order as integers is theirs: equal numbers (-0 and 0, all NaN)
// equal words, NaN the largest; backwards the words are inverted. Of equal ones the first comes first.
#pragma once

#include "arithmetic.cuh"
#include "packs.cuh"

namespace gradtape {

template <class T>
DEVICE auto sort_key(T x)
{
    using U = Word<T>;
    constexpr U top = U(1) << (8 * sizeof(U) - 1);
    if constexpr (is_float<T>) {
        const U bits = x == T(0) ? U(0) : bitcast<U>(x);
        return x != x ? U(~U(0)) : bits & top ? U(~bits) : U(bits | top);
    } else if constexpr (is_signed<T>) {
        return U(U(x) ^ top);
    } else {
        return U(x);
    }
}

template <bool DOWN, class T>
DEVICE auto ordered_key(T x)
{
    const auto key = sort_key(widen(x));
    return DOWN ? decltype(key)(~key) : key;
}

// ---------------------------------------------------------------- short rows, sorted by a block

// A key and the position that it comes from.
struct Entry {
    uint64 key;
    uint64 position;
};

DEVICE uint64 entry(uint32 key, uint32 position) { return uint64(key) << 32 | position; }
DEVICE Entry entry(uint64 key, uint32 position) { return {key, position}; }
DEVICE bool comes_after(uint64 a, uint64 b) { return a > b; }
DEVICE bool comes_after(Entry a, Entry b) { return a.key > b.key || (a.key == b.key && a.position > b.position); }
DEVICE int32 position_of(uint64 e) { return int32(uint32(e)); }
DEVICE int32 position_of(Entry e) { return int32(e.position); }

// A block puts each of ROWS rows of SIZE entries in order, by Batcher's bitonic network. All of its threads come here.
template <int SIZE, int ROWS, int THREADS, class E>
DEVICE void sort_entries(E* entries)
{
    __syncthreads();
    for (int size = 2; size <= SIZE; size *= 2)
        for (int distance = size / 2; distance > 0; distance /= 2) {
            for (int p = threadIdx.x; p < SIZE * ROWS / 2; p += THREADS) {
                const int low = 2 * p - (p & (distance - 1)), high = low + distance;
                const bool up = ((low % SIZE) & size) == 0;
                const auto a = entries[low], b = entries[high];
                if (comes_after(a, b) == up) {
                    entries[low] = b;
                    entries[high] = a;
                }
            }
            __syncthreads();
        }
}

// The first `count` of each row; rows are `n` elements long, `inner` of them apart. A block sorts ROWS rows of up to SIZE
// elements.
template <int SIZE, int ROWS, int THREADS, bool DOWN, class T, class I>
DEVICE void sort_rows(int32* out, const T* x, I rows, I n, I inner, I count)
{
    using Key = decltype(ordered_key<DOWN>(T{}));
    __shared__ decltype(entry(Key(0), 0u)) entries[SIZE * ROWS];
    for (I first = I(blockIdx.x) * ROWS; first < rows; first += I(gridDim.x) * ROWS) {
        for (int q = threadIdx.x; q < SIZE * ROWS; q += THREADS) {
            const int r = inner == 1 ? q / SIZE : q % ROWS, j = inner == 1 ? q % SIZE : q / ROWS;
            const I row = first + r;
            auto one = entry(Key(~Key(0)), 0xffffffffu);
            if (row < rows && j < n)
                one = entry(ordered_key<DOWN>(x[row / inner * inner * n + row % inner + j * inner]), uint32(j));
            entries[r * SIZE + j] = one;
        }
        sort_entries<SIZE, ROWS, THREADS>(entries);
        const int taken = int(count) * ROWS;
        for (int q = threadIdx.x; q < taken; q += THREADS) {
            const int r = inner == 1 ? q / int(count) : q % ROWS, j = inner == 1 ? q % int(count) : q / ROWS;
            const I row = first + r;
            if (row < rows)
                out[row / inner * inner * count + row % inner + j * inner] = position_of(entries[r * SIZE + j]);
        }
        __syncthreads();
    }
}

// ---------------------------------------------------------------- long rows, sorted by a library

// The keys of all elements, row by row.
template <bool DOWN, class K, class T, class I>
DEVICE void write_keys(K* keys, const T* x, I size, I n, I inner)
{
    for (I i = thread<I>(); i < size; i += threads<I>()) {
        const I j = i / inner % n, row = i / (inner * n) * inner + i % inner;
        keys[row * n + j] = ordered_key<DOWN>(x[i]);
    }
}

// The first `count` positions of each row.
template <class I>
DEVICE void write_positions(int32* out, const int64* order, I size, I n, I inner, I count)
{
    for (I i = thread<I>(); i < size; i += threads<I>()) {
        const I j = i / inner % count, row = i / (inner * count) * inner + i % inner;
        out[i] = int32(order[row * n + j]);
    }
}

}  // namespace gradtape
