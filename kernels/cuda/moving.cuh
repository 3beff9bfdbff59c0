// Elements that move and are not looked at: words of 1 to 16 bytes, read where they lie for the place they go to.
#pragma once

#include "packs.cuh"

namespace gradtape {

// ---------------------------------------------------------------- along one axis

// Where what stands at i comes from, if the source stands in the result from `begin` on.
template <class I, class B>
DEVICE I put(I i, B begin, I count, bool& inside)
{
    const auto j = i - begin;
    inside = inside && j >= 0 && j < count;
    return I(j);
}

// The same in steps.
template <class I, class B>
DEVICE I spread(I i, B begin, I step, I count, bool& inside)
{
    const auto distance = i - begin;
    const auto j = distance / step;
    inside = inside && j * step == distance && j >= 0 && j < count;
    return I(j);
}

// Where what stands at i comes from, if it is a part of the source from `begin` on, in steps.
template <class I>
DEVICE I taken(I i, int64 begin, I step, I count, bool& inside)
{
    const int64 j = begin + int64(i) * int64(step);
    inside = inside && j >= 0 && j < int64(count);
    return I(j);
}

// ---------------------------------------------------------------- diagonals

// Rows of n, zero but for the elements on the diagonals of whole squares.
template <int V, class W, class I>
DEVICE void undiagonal(W* out, const W* x, I size, I n)
{
    for (I e = thread<I>() * V; e < size; e += threads<I>() * V) {
        I row = e / n, column = e % n, place = row % n;
        Pack<W, V> pack;
#pragma unroll
        for (int j = 0; j < V; ++j) {
            pack[j] = column == place && e + j < size ? x[row] : W{};
            if (++column == n) {
                column = 0;
                ++row;
                place = place + 1 == n ? 0 : place + 1;
            }
        }
        if (e + V <= size) {
            store(out, e, pack);
        } else {
#pragma unroll
            for (int j = 0; j < V; ++j)
                if (e + j < size)
                    out[e + j] = pack[j];
        }
    }
}

// ---------------------------------------------------------------- rows at positions

// The rows of x at positions: x is batches · before · n rows of so many words, the result has `count` of them for each
// n. What is asked for at positions that do not exist is zero. TEAM threads share a row; a piece of it, if it is long.
template <int TEAM, class W, class J, class I>
DEVICE void gather(W* out, const W* x, const J* positions, I rows, I count, I before, I n, I width, I span)
{
    const I team = I(threadIdx.x) / TEAM, lane = I(threadIdx.x) % TEAM, teams = I(blockDim.x) / TEAM;
    const I pieces = (width + span - 1) / span, rounds = rows * pieces;
    for (I first = I(blockIdx.x) * teams; first < rounds; first += I(gridDim.x) * teams) {
        const I round = first + team;
        const bool active = round < rounds;
        const I row = round / pieces, piece = round % pieces;
        const I lead = row / count;
        int64 position = 0;
        if (active && lane == 0)
            position = int64(positions[lead / before * count + row % count]);
        if constexpr (TEAM > 1)
            position = __shfl_sync(0xffffffffu, position, 0, TEAM);
        if (!active)
            continue;
        const bool exists = position >= 0 && position < int64(n);
        const W* source = x + (lead * n + (exists ? I(position) : I(0))) * width;
        W* target = out + row * width;
        const I end = (piece + 1) * span < width ? (piece + 1) * span : width;
        for (I j = piece * span + lane; j < end; j += TEAM)
            target[j] = exists ? source[j] : W{};
    }
}

}  // namespace gradtape
