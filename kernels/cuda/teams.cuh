// Threads that share the elements of one row or one column, and how their numbers are put together: always in the same
// order, so that equal operands give equal results.
#pragma once

#include "arithmetic.cuh"
#include "packs.cuh"

namespace gradtape {

// ---------------------------------------------------------------- monoids

struct Sum {
    template <class T> static DEVICE T neutral() { return T{}; }
    template <class T> static DEVICE T of(T a, T b) { return add(a, b); }
};
struct Prod {
    template <class T> static DEVICE T neutral() { return cast<T>(1); }
    template <class T> static DEVICE T of(T a, T b) { return multiply(a, b); }
};
struct Max {
    template <class T> static DEVICE T neutral() { return lowest<T>(); }
    template <class T> static DEVICE T of(T a, T b) { return maximum(a, b); }
};
struct Min {
    template <class T> static DEVICE T neutral() { return highest<T>(); }
    template <class T> static DEVICE T of(T a, T b) { return minimum(a, b); }
};
struct All {
    template <class T> static DEVICE T neutral() { return true; }
    template <class T> static DEVICE T of(T a, T b) { return a && b; }
};
struct Any {
    template <class T> static DEVICE T neutral() { return false; }
    template <class T> static DEVICE T of(T a, T b) { return a || b; }
};

// ---------------------------------------------------------------- threads

template <class T>
DEVICE T from_lane(T x, int distance)
{
    if constexpr (is_complex<T>)
        return {from_lane(x.re, distance), from_lane(x.im, distance)};
    else if constexpr (sizeof(T) < 4)
        return T(__shfl_xor_sync(0xffffffffu, int(x), distance));
    else
        return __shfl_xor_sync(0xffffffffu, x, distance);
}

// What the first of so many neighbouring lanes has.
template <int LANES, class T>
DEVICE T from_first(T x)
{
    if constexpr (is_complex<T>)
        return {from_first<LANES>(x.re), from_first<LANES>(x.im)};
    else if constexpr (sizeof(T) < 4)
        return T(__shfl_sync(0xffffffffu, int(x), 0, LANES));
    else
        return __shfl_sync(0xffffffffu, x, 0, LANES);
}
template <int LANES> DEVICE float16 from_first(float16 x) { return {from_first<LANES>(x.bits)}; }
template <int LANES> DEVICE bfloat16 from_first(bfloat16 x) { return {from_first<LANES>(x.bits)}; }

// Neighbouring threads share a row: a part of a warp, or the whole block.
template <int TEAM, int THREADS>
struct Along {
    static constexpr int SIZE = TEAM, COUNT = THREADS / TEAM;
    const int lane = int(threadIdx.x) % TEAM, number = int(threadIdx.x) / TEAM;
    static DEVICE int thread(int lane, int number) { return number * SIZE + lane; }

    // An element that the whole team needs: one lane (of each warp) reads it, and tells the others.
    template <class T, class I>
    DEVICE T told(const T* array, I place) const
    {
        constexpr int LANES = TEAM < 32 ? TEAM : 32;
        T x{};
        if (LANES == 1 || threadIdx.x % LANES == 0)
            x = array[place];
        if constexpr (LANES == 1)
            return x;
        else
            return from_first<LANES>(x);
    }

    // The numbers of all lanes as one, for each of them.
    template <class Monoid, class T>
    DEVICE T all(T x) const
    {
#pragma unroll
        for (int distance = 1; distance < (TEAM < 32 ? TEAM : 32); distance *= 2)
            x = Monoid::of(x, from_lane(x, distance));
        if constexpr (TEAM > 32) {
            static_assert(TEAM == THREADS, "more than a warp is the whole block");
            __shared__ T warps[TEAM / 32];
            if (threadIdx.x % 32 == 0)
                warps[threadIdx.x / 32] = x;
            __syncthreads();
            x = warps[0];
#pragma unroll
            for (int k = 1; k < TEAM / 32; ++k)
                x = Monoid::of(x, warps[k]);
            __syncthreads();
        }
        return x;
    }
};

// Neighbouring threads stand on neighbouring columns; those at a distance of COLUMNS share one.
template <int COLUMNS, int THREADS>
struct Across {
    static constexpr int SIZE = THREADS / COLUMNS, COUNT = COLUMNS;
    const int lane = int(threadIdx.x) / COLUMNS, number = int(threadIdx.x) % COLUMNS;
    static DEVICE int thread(int lane, int number) { return lane * COUNT + number; }

    template <class Monoid, class T>
    DEVICE T all(T x) const
    {
        __shared__ T numbers[THREADS];
        numbers[threadIdx.x] = x;
        __syncthreads();
        x = numbers[number];
#pragma unroll
        for (int k = 1; k < SIZE; ++k)
            x = Monoid::of(x, numbers[k * COLUMNS + number]);
        __syncthreads();
        return x;
    }
};

// ---------------------------------------------------------------- the second stage of sums

// What the teams of a block carried for each element, as one number for each: the block's part of the result. `held` has
// a pack for each element of each thread, one sweep after the other.
template <class Monoid, class Team, int V, class T, class I>
DEVICE void hand_over(const T* held, T* parts, I size)
{
    __syncthreads();
    for (I q = threadIdx.x; q < size; q += Team::SIZE * Team::COUNT) {
        const int before = int(q) / Team::SIZE * (Team::SIZE * Team::COUNT), lane = int(q) % Team::SIZE;
        Pack<T, V> x = load<V>(held, (before + Team::thread(lane, 0)) * V);
        for (int team = 1; team < Team::COUNT; ++team) {
            const Pack<T, V> other = load<V>(held, (before + Team::thread(lane, team)) * V);
#pragma unroll
            for (int j = 0; j < V; ++j)
                x[j] = Monoid::of(x[j], other[j]);
        }
        store(parts, (I(blockIdx.x) * size + q) * V, x);
    }
}

// One number of so many parts, at a distance from each other.
template <class Monoid, class Team, class T, class I>
DEVICE T combined(const Team& team, const T* parts, I distance, int count)
{
    T x = Monoid::template neutral<T>();
    for (int k = team.lane; k < count; k += Team::SIZE)
        x = Monoid::of(x, parts[k * distance]);
    return team.template all<Monoid>(x);
}

}  // namespace gradtape
