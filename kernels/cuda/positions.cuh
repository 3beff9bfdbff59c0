// Positions of extreme elements, and places of values in sorted rows.
#pragma once

#include "teams.cuh"

namespace gradtape {

// ---------------------------------------------------------------- the first extreme

// An element and its position; none, if that is negative.
template <class T, class I>
struct Found {
    T x;
    I at;
};

// Of two elements the extreme one, of equal ones the first; NaN comes before all numbers.
template <bool LARGEST, class T, class I>
DEVICE Found<T, I> first_of(Found<T, I> a, Found<T, I> b)
{
    const bool a_is_nan = a.x != a.x, b_is_nan = b.x != b.x;
    const bool same = a_is_nan ? b_is_nan : a.x == b.x;
    const bool more = LARGEST ? b.x > a.x : b.x < a.x;
    const bool second = same ? b.at < a.at : !a_is_nan && (b_is_nan || more);
    return b.at >= 0 && (a.at < 0 || second) ? b : a;
}

template <bool LARGEST, int TEAM, class T, class I>
DEVICE Found<T, I> first_of_team(Found<T, I> mine)
{
#pragma unroll
    for (int distance = 1; distance < TEAM; distance *= 2)
        mine = first_of<LARGEST>(mine, {from_lane(mine.x, distance), from_lane(mine.at, distance)});
    return mine;
}

// For each of outer · parts · inner, the position of the first extreme of a part of n elements, `inner` apart.
template <bool LARGEST, int TEAM, int V, class O, class T, class I>
DEVICE void extreme(O* out, const T* x, I outer, I n, I inner, I parts)
{
    using A = decltype(widen(T{}));
    const I team = I(threadIdx.x) / TEAM, lane = I(threadIdx.x) % TEAM, teams = I(blockDim.x) / TEAM;
    const I rounds = outer * parts * inner, share = (n / V + parts - 1) / parts * V;
    for (I first = I(blockIdx.x) * teams; first < rounds; first += I(gridDim.x) * teams) {
        const bool active = first + team < rounds;
        const I round = active ? first + team : 0;
        const I column = round % inner, part = round / inner % parts, row = round / inner / parts;
        const I begin = part * share, end = !active ? begin : n - begin < share ? n : begin + share;
        Found<A, I> mine{A{}, I(-1)};
        for (I k = begin + lane * V; k < end; k += TEAM * V) {
            const Pack<T, V> pack = load<V>(x, (row * n + k) * inner + column);
#pragma unroll
            for (int j = 0; j < V; ++j)
                mine = first_of<LARGEST>(mine, {A(widen(pack.at[j])), k + j});
        }
        mine = first_of_team<LARGEST, TEAM>(mine);
        if (active && lane == 0)
            out[(row * inner + column) * parts + part] = O(mine.at);
    }
}

// The first extreme of those of parts, whose positions were found before.
template <bool LARGEST, class O, class T, class I>
DEVICE void extreme_of_parts(O* out, const I* found, const T* x, I outer, I n, I inner, I parts)
{
    using A = decltype(widen(T{}));
    constexpr int TEAM = 32;
    const I team = I(threadIdx.x) / TEAM, lane = I(threadIdx.x) % TEAM, teams = I(blockDim.x) / TEAM;
    const I results = outer * inner;
    for (I first = I(blockIdx.x) * teams; first < results; first += I(gridDim.x) * teams) {
        const bool active = first + team < results;
        const I result = active ? first + team : 0;
        Found<A, I> mine{A{}, I(-1)};
        for (I part = lane; active && part < parts; part += TEAM) {
            const I at = found[result * parts + part];
            if (at >= 0)
                mine = first_of<LARGEST>(mine, {A(widen(x[(result / inner * n + at) * inner + result % inner])), at});
        }
        mine = first_of_team<LARGEST, TEAM>(mine);
        if (active && lane == 0)
            out[result] = O(mine.at);
    }
}

// ---------------------------------------------------------------- places in sorted rows

// How many of the n elements of its row are below each value (RIGHT: or equal to it). NAN_LAST: NaN is above all numbers.
template <bool RIGHT, bool NAN_LAST, class O, class T, class I>
DEVICE void search(O* out, const T* sorted, const T* values, I size, I count, I n)
{
    using A = decltype(widen(T{}));
    const auto is_below = [](A x, A y) { return x < y || (NAN_LAST && x == x && y != y); };
    for (I u = thread<I>(); u < size; u += threads<I>()) {
        const A value = widen(values[u]);
        const T* row = sorted + u / count * n;
        I low = 0, high = n;
        while (low < high) {
            const I middle = low + (high - low) / 2;
            const A x = widen(row[middle]);
            const bool is_behind = !RIGHT ? is_below(x, value) : NAN_LAST ? !is_below(value, x) : x <= value;
            low = is_behind ? middle + 1 : low;
            high = is_behind ? high : middle;
        }
        out[u] = O(low);
    }
}

}  // namespace gradtape
