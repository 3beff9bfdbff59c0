// What meets at one position combined, in an order that depends on operands only: by keys that are sorted.
//
// A key has a row of the result in its upper bits and the number of an element of the positions below. Sorted keys are
// cut into chunks of equal length. A team of threads goes through a chunk; of a row whose keys do not all lie in it, it
// leaves a part: `heads` has that of the chunk's first row, if it has begun before, `tails` that of the last one, if it
// goes on and begins here. `meet` puts the parts together.
#pragma once

#include "sorting.cuh"
#include "teams.cuh"

namespace gradtape {

// The key of a position; one that does not exist gets a row behind all others.
template <class J, class I>
DEVICE int64 key_of(const J* positions, I m, I count, int64 rows, int64 n, int bits)
{
    const int64 position = int64(positions[m]);
    const bool exists = position >= 0 && position < n;
    return (exists ? int64(m / count) * n + position : rows) << bits | int64(m);
}

template <class J, class I>
DEVICE void make_keys(int64* keys, const J* positions, I size, I count, int64 rows, int64 n, int bits)
{
    for (I m = thread<I>(); m < size; m += threads<I>())
        keys[m] = key_of(positions, m, count, rows, n, bits);
}

// The same in order, up to SIZE of them, by one block.
template <int SIZE, int THREADS, class J, class I>
DEVICE void sort_keys(int64* keys, const J* positions, I size, I count, int64 rows, int64 n, int bits)
{
    __shared__ uint64 entries[SIZE];
    for (int m = threadIdx.x; m < SIZE; m += THREADS)
        entries[m] = m < size ? uint64(key_of(positions, I(m), count, rows, n, bits)) : ~uint64(0);
    sort_entries<SIZE, 1, THREADS>(entries);
    for (int m = threadIdx.x; m < size; m += THREADS)
        keys[m] = int64(entries[m]);
}

template <bool CONDITION, class X, class Y> struct Choice { using type = X; };
template <class X, class Y> struct Choice<false, X, Y> { using type = Y; };

// Where rows of elements lie: `batches` of `before` slices of `count` (or `n`) positions of `inner` packs.
template <class I>
struct Slices {
    I count, n, before, inner, columns;
    // The pack of column q that belongs to element m of the positions.
    DEVICE I source(I m, I q) const
    {
        return before == 1 ? m * inner + q : ((m / count * before + q / inner) * count + m % count) * inner + q % inner;
    }
    // The pack of column q in a row of the result.
    DEVICE I target(I row, I q) const
    {
        return before == 1 ? row * inner + q : ((row / n * before + q / inner) * n + row % n) * inner + q % inner;
    }
};

template <int V, class A, class T>
DEVICE Pack<A, V> widened(const Pack<T, V>& pack)
{
    Pack<A, V> wide;
#pragma unroll
    for (int j = 0; j < V; ++j)
        wide[j] = A(widen(pack.at[j]));
    return wide;
}

template <int V, class T, class A>
DEVICE Pack<T, V> narrowed(const Pack<A, V>& wide)
{
    Pack<T, V> pack;
#pragma unroll
    for (int j = 0; j < V; ++j)
        pack[j] = stored<T>(wide.at[j]);
    return pack;
}

template <class Monoid, int V, class A>
DEVICE void join(Pack<A, V>& x, const Pack<A, V>& y)
{
#pragma unroll
    for (int j = 0; j < V; ++j)
        x[j] = Monoid::of(x[j], y.at[j]);
}

template <class Monoid, int V, class A>
DEVICE Pack<A, V> neutral()
{
    Pack<A, V> x;
#pragma unroll
    for (int j = 0; j < V; ++j)
        x[j] = Monoid::template neutral<A>();
    return x;
}

// ---------------------------------------------------------------- chunks

constexpr int AT_ONCE = 4;  // packs that a thread waits for together, where their elements are few

// One team for each chunk and TEAM packs of a row.
template <class Monoid, int TEAM, int V, class A, class T, class I>
DEVICE void scatter(
    T* out, A* heads, A* tails, const int64* keys, const T* x, Slices<I> at, I size, I chunk, int64 rows, int bits)
{
    constexpr int MANY = V > 4 ? AT_ONCE / 2 : AT_ONCE, STEP = TEAM < MANY ? MANY : TEAM;
    const I team = I(threadIdx.x) / TEAM, lane = I(threadIdx.x) % TEAM, teams = I(blockDim.x) / TEAM;
    const I strips = (at.columns + TEAM - 1) / TEAM, rounds = (size + chunk - 1) / chunk * strips;
    const int64 below = (int64(1) << bits) - 1;
    for (I first = I(blockIdx.x) * teams; first < rounds; first += I(gridDim.x) * teams) {
        const I round = first + team;
        const bool active = round < rounds;
        const I number = active ? round / strips : 0, q = (active ? round % strips : 0) * TEAM + lane;
        const bool mine = active && q < at.columns;
        const I begin = number * chunk, end = size - begin < chunk ? size : begin + chunk;
        const int64 before = active && begin > 0 ? keys[begin - 1] >> bits : -1;
        const int64 behind = active && end < size ? keys[end] >> bits : -1;
        int64 row = -1;
        bool has_begun_before = false;
        Pack<A, V> total = neutral<Monoid, V, A>();
        for (I base = 0; base < chunk; base += STEP) {
            int64 own = -1;
            if constexpr (TEAM > 1)
                own = active && base + lane < end - begin ? keys[begin + base + lane] : -1;
            for (int j = 0; j < STEP; j += MANY) {
                int64 key[MANY];
                Pack<T, V> pack[MANY];
#pragma unroll
                for (int k = 0; k < MANY; ++k) {
                    if constexpr (TEAM > 1)
                        key[k] = __shfl_sync(0xffffffffu, own, j + k, TEAM);
                    else
                        key[k] = active && base + k < end - begin ? keys[begin + base + k] : -1;
                    if (mine && key[k] >= 0 && key[k] >> bits < rows)
                        pack[k] = load<V>(x, at.source(I(key[k] & below), q) * V);
                }
#pragma unroll
                for (int k = 0; k < MANY; ++k) {
                    const int64 next = key[k] >> bits;
                    if (!mine || next < 0 || next >= rows)
                        continue;
                    if (next != row) {
                        if (row >= 0 && has_begun_before)
                            store(heads, (number * at.columns + q) * V, total);
                        else if (row >= 0)
                            store(out, at.target(I(row), q) * V, narrowed<V, T>(total));
                        has_begun_before = row < 0 && next == before;
                        row = next;
                        total = neutral<Monoid, V, A>();
                    }
                    join<Monoid>(total, widened<V, A>(pack[k]));
                }
            }
        }
        if (row < 0)
            continue;
        if (has_begun_before)
            store(heads, (number * at.columns + q) * V, total);
        else if (row == behind)
            store(tails, (number * at.columns + q) * V, total);
        else
            store(out, at.target(I(row), q) * V, narrowed<V, T>(total));
    }
}

// ---------------------------------------------------------------- rows of several chunks

constexpr int FEW = 32;  // heads up to which one thread puts a row together

// The number of sorted keys below one.
template <class I>
DEVICE I keys_below(const int64* keys, I size, int64 key)
{
    I low = 0, high = size;
    while (low < high) {
        const I middle = low + (high - low) / 2;
        if (keys[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Rows of few chunks: a thread for each pack of the row that begins in a chunk and goes on in the next one.
template <class Monoid, int V, class A, class T, class I>
DEVICE void meet_few(
    T* out, const A* heads, const A* tails, const int64* keys, Slices<I> at, I size, I chunk, I skipped, int64 rows,
    int bits)
{
    const I chunks = (size + chunk - 1) / chunk, all = (chunks - 1) * at.columns;
    const auto row_of = [&](I number) { return keys[number * chunk] >> bits; };
    const I stride = (I(gridDim.x) - skipped) * I(blockDim.x);
    for (I u = (I(blockIdx.x) - skipped) * I(blockDim.x) + I(threadIdx.x); u < all; u += stride) {
        const I number = u / at.columns, q = u % at.columns;
        const int64 row = row_of(number + 1);
        if (row >= rows || keys[(number + 1) * chunk - 1] >> bits != row)
            continue;
        if (number > 0 && keys[number * chunk - 1] >> bits == row)
            continue;
        if (chunks - number > FEW + 1 && row_of(number + FEW + 1) == row)
            continue;
        Pack<A, V> total = load<V>(tails, (number * at.columns + q) * V);
        for (I other = number + 1; other < chunks && row_of(other) == row; ++other)
            join<Monoid>(total, load<V>(heads, (other * at.columns + q) * V));
        store(out, at.target(I(row), q) * V, narrowed<V, T>(total));
    }
}

// Rows of many chunks: each reaches over a chunk whose number is a multiple of FEW; the first such chunk has a block.
template <class Monoid, int COLUMNS, int V, class A, class T, class I>
DEVICE void meet_many(
    T* out, const A* heads, const A* tails, const int64* keys, Slices<I> at, I size, I chunk, I blocks, int64 rows,
    int bits)
{
    using Threads = typename Choice<COLUMNS == 1, Along<256, 256>, Across<COLUMNS, 256>>::type;
    const Threads team;
    const I strips = (at.columns + COLUMNS - 1) / COLUMNS;
    const I rounds = ((size + chunk - 1) / chunk - 1) / FEW * strips;
    for (I round = I(blockIdx.x); round < rounds; round += blocks) {
        const I number = (round / strips + 1) * FEW, q = round % strips * COLUMNS + team.number;
        __shared__ int64 row;
        __shared__ I begin, last;
        __syncthreads();
        if (threadIdx.x == 0) {
            row = keys[number * chunk] >> bits;
            begin = row < rows ? keys_below(keys, size, row << bits) / chunk : number;
            last = begin < number ? (keys_below(keys, size, (row + 1) << bits) - 1) / chunk : number;
        }
        __syncthreads();
        if (begin >= number || number - begin > FEW || last - begin <= FEW)
            continue;
        const bool mine = q < at.columns;
        Pack<A, V> total = neutral<Monoid, V, A>();
        if (mine && team.lane == 0)
            total = load<V>(tails, (begin * at.columns + q) * V);
        for (I other = begin + 1 + team.lane; mine && other <= last; other += Threads::SIZE)
            join<Monoid>(total, load<V>(heads, (other * at.columns + q) * V));
#pragma unroll
        for (int j = 0; j < V; ++j)
            total[j] = team.template all<Monoid>(total[j]);
        if (mine && team.lane == 0)
            store(out, at.target(I(row), q) * V, narrowed<V, T>(total));
    }
}

template <class Monoid, int COLUMNS, int V, class A, class T, class I>
DEVICE void meet(
    T* out, const A* heads, const A* tails, const int64* keys, Slices<I> at, I size, I chunk, I blocks, int64 rows,
    int bits)
{
    if (I(blockIdx.x) < blocks)
        meet_many<Monoid, COLUMNS, V>(out, heads, tails, keys, at, size, chunk, blocks, rows, bits);
    else
        meet_few<Monoid, V>(out, heads, tails, keys, at, size, chunk, blocks, rows, bits);
}

}  // namespace gradtape
