// Running sums and their like along one axis: each thread takes neighbouring elements, or a piece of a column, and what
// lies before them is joined in a fixed order, so that equal operands give equal results.
//
// A scan has elements, as they are read; states, which join (what comes first on the left); and results.
#pragma once

#include "functions.cuh"
#include "packs.cuh"
#include "teams.cuh"

namespace gradtape {

template <class T> using Computed = decltype(widen(T{}));  // of halves float32

// ---------------------------------------------------------------- sums and products

template <class Monoid, class T>
struct Running {
    using State = Computed<T>;
    using Element = State;
    const T* x;
    T* out;

    template <int V> DEVICE bool allows() const { return is_aligned<V>(x, out); }
    static DEVICE State neutral() { return Monoid::template neutral<State>(); }
    static DEVICE State joined(State a, State b) { return Monoid::of(a, b); }
    static DEVICE State state(Element e) { return e; }

    template <int V, class I>
    DEVICE void read(I place, Element* e) const
    {
        const auto pack = load<V>(x, place);
#pragma unroll
        for (int k = 0; k < V; ++k)
            e[k] = widen(pack[k]);
    }

    template <int V, class I>
    DEVICE void write(I place, const Element*, const State* s) const
    {
        Pack<T, V> pack;
#pragma unroll
        for (int k = 0; k < V; ++k)
            pack[k] = stored<T>(s[k]);
        store(out, place, pack);
    }
};

// ---------------------------------------------------------------- sums of exponentials

// The largest exponent, and the sum of exp(x - top); nothing where all exponents are -inf.
template <class S>
struct Exponentials {
    S top, sum;
};

// By what a sum shrinks whose exponents are relative to a larger one from now on. Two infinite ones are equal for
// log(sum(exp(x))), which is infinite then; weights are not known.
template <bool EQUAL, class S>
DEVICE S shrunk(S from, S to)
{
    return EQUAL && from == to ? S(1) : from == lowest<S>() ? S(0) : exp(from - to);
}

template <class T>
struct LogSumExp {
    using Element = Computed<T>;
    using State = Exponentials<Element>;
    const T* x;
    T* out;

    template <int V> DEVICE bool allows() const { return is_aligned<V>(x, out); }
    static DEVICE State neutral() { return {lowest<Element>(), Element(0)}; }
    static DEVICE State state(Element e) { return {e, e == lowest<Element>() ? Element(0) : Element(1)}; }

    static DEVICE State joined(State a, State b)
    {
        const Element top = maximum(a.top, b.top);
        return {top, a.sum * shrunk<true>(a.top, top) + b.sum * shrunk<true>(b.top, top)};
    }

    template <int V, class I>
    DEVICE void read(I place, Element* e) const
    {
        const auto pack = load<V>(x, place);
#pragma unroll
        for (int k = 0; k < V; ++k)
            e[k] = widen(pack[k]);
    }

    template <int V, class I>
    DEVICE void write(I place, const Element*, const State* s) const
    {
        Pack<T, V> pack;
#pragma unroll
        for (int k = 0; k < V; ++k)
            pack[k] = stored<T>(s[k].top + log(s[k].sum));
        store(out, place, pack);
    }
};

// ---------------------------------------------------------------- the weights of log(sum(exp(x))), times numbers

template <class S> DEVICE S or_one(S sum) { return sum == S(0) ? S(1) : sum; }

// The largest exponents and 1 / sum, for `Pulled`.
template <class T>
struct Tops {
    using Element = Computed<T>;
    using State = Exponentials<Element>;
    const T* x;
    Element *top, *scale;

    template <int V> DEVICE bool allows() const { return is_aligned<V>(x) && is_aligned<V>(top, scale); }
    static DEVICE State neutral() { return LogSumExp<T>::neutral(); }
    static DEVICE State state(Element e) { return LogSumExp<T>::state(e); }

    static DEVICE State joined(State a, State b)
    {
        const Element top = maximum(a.top, b.top);
        return {top, a.sum * shrunk<false>(a.top, top) + b.sum * shrunk<false>(b.top, top)};
    }

    template <int V, class I>
    DEVICE void read(I place, Element* e) const
    {
        LogSumExp<T>{x, nullptr}.template read<V>(place, e);
    }

    template <int V, class I>
    DEVICE void write(I place, const Element*, const State* s) const
    {
        Pack<Element, V> tops, scales;
#pragma unroll
        for (int k = 0; k < V; ++k) {
            tops[k] = s[k].top;
            scales[k] = Element(1) / or_one(s[k].sum);
        }
        store(top, place, tops);
        store(scale, place, scales);
    }
};

// Σ c[k] w[i, k] over k from i on, from the end: sums of c[k] scale[k] exp(top of the first - top[k]).
template <class T>
struct Pulled {
    using S = Computed<T>;
    struct Element {
        S x, c, top, scale;
    };
    struct State {
        S top, total;
    };
    const T *x, *c;
    const S *top, *scale;
    T* out;

    template <int V> DEVICE bool allows() const { return is_aligned<V>(x, c, out) && is_aligned<V>(top, scale); }
    static DEVICE State neutral() { return {highest<S>(), S(0)}; }
    static DEVICE State state(Element e) { return {e.top, e.c * e.scale}; }

    static DEVICE State joined(State a, State b)
    {
        if (b.top == highest<S>() && b.total == S(0))  // nothing: next to an infinite top all is NaN
            return a;
        return {b.top, b.total + shrunk<false>(b.top, a.top) * a.total};
    }

    template <int V, class I>
    DEVICE void read(I place, Element* e) const
    {
        const auto xs = load<V>(x, place), cs = load<V>(c, place);
        const auto tops = load<V>(top, place), scales = load<V>(scale, place);
#pragma unroll
        for (int k = 0; k < V; ++k)
            e[k] = {widen(xs[k]), widen(cs[k]), tops[k], scales[k]};
    }

    template <int V, class I>
    DEVICE void write(I place, const Element* e, const State* s) const
    {
        Pack<T, V> pack;
#pragma unroll
        for (int k = 0; k < V; ++k)
            pack[k] = stored<T>(shrunk<false>(e[k].x, e[k].top) * s[k].total);
        store(out, place, pack);
    }
};

// Σ u[i] w[i, k] over i up to k.
template <class T>
struct Pushed {
    using S = Computed<T>;
    struct Element {
        S x, u;
    };
    struct State {
        S top, sum, total;
    };
    const T *x, *u;
    T* out;

    template <int V> DEVICE bool allows() const { return is_aligned<V>(x, u, out); }
    static DEVICE State neutral() { return {lowest<S>(), S(0), S(0)}; }

    static DEVICE State state(Element e)
    {
        const bool none = e.x == lowest<S>();
        return {e.x, none ? S(0) : S(1), none ? S(0) : e.u};
    }

    static DEVICE State joined(State a, State b)
    {
        const S top = maximum(a.top, b.top), first = shrunk<false>(a.top, top), second = shrunk<false>(b.top, top);
        return {top, a.sum * first + b.sum * second, a.total * first + b.total * second};
    }

    template <int V, class I>
    DEVICE void read(I place, Element* e) const
    {
        const auto xs = load<V>(x, place), us = load<V>(u, place);
#pragma unroll
        for (int k = 0; k < V; ++k)
            e[k] = {widen(xs[k]), widen(us[k])};
    }

    template <int V, class I>
    DEVICE void write(I place, const Element*, const State* s) const
    {
        Pack<T, V> pack;
#pragma unroll
        for (int k = 0; k < V; ++k)
            pack[k] = stored<T>(s[k].total / or_one(s[k].sum));
        store(out, place, pack);
    }
};

// ---------------------------------------------------------------- between threads

// The number that `call` makes of each word of a state.
template <class T, class F>
DEVICE T by_words(T x, F call)
{
    if constexpr (sizeof(T) < 4) {
        return T(call(uint32(x)));
    } else {
        union {
            T value;
            uint32 words[sizeof(T) / 4];
        } both = {x};
#pragma unroll
        for (int k = 0; k < int(sizeof(T) / 4); ++k)
            both.words[k] = call(both.words[k]);
        return both.value;
    }
}

// The states of neighbouring lanes, each joined to all before it.
template <class Scan, int WIDTH, class State>
DEVICE State up_to(State x)
{
#pragma unroll
    for (int distance = 1; distance < WIDTH; distance *= 2) {
        const State other =
            by_words(x, [=](uint32 word) { return __shfl_up_sync(0xffffffffu, word, distance, WIDTH); });
        if (int(threadIdx.x) % WIDTH >= distance)
            x = Scan::joined(other, x);
    }
    return x;
}

template <int WIDTH, class State>
DEVICE State of_lane(State x, int lane)
{
    return by_words(x, [=](uint32 word) { return __shfl_sync(0xffffffffu, word, lane, WIDTH); });
}

// What lies before each of LANES neighbouring threads, and `all` of them.
template <class Scan, int LANES, int THREADS, class State>
DEVICE State before(State mine, State& all)
{
    constexpr int WIDTH = LANES < 32 ? LANES : 32, WARPS = THREADS / 32;
    const int lane = int(threadIdx.x) % WIDTH, warp = int(threadIdx.x) / 32;
    const State x = up_to<Scan, WIDTH>(mine);
    State found = of_lane<WIDTH>(x, lane ? lane - 1 : 0);
    if (lane == 0)
        found = Scan::neutral();
    if constexpr (LANES <= 32) {
        all = of_lane<WIDTH>(x, WIDTH - 1);
    } else {
        static_assert(LANES == THREADS && WARPS <= 32, "more than a warp is the whole block");
        __shared__ State warps[WARPS];
        if (lane == 31)
            warps[warp] = x;
        __syncthreads();
        const State joint = up_to<Scan, WARPS>(warps[int(threadIdx.x) % WARPS]);
        __syncthreads();
        const State front = of_lane<WARPS>(joint, warp ? warp - 1 : 0);
        all = of_lane<WARPS>(joint, WARPS - 1);
        if (warp)
            found = Scan::joined(front, found);
    }
    return found;
}

// ---------------------------------------------------------------- rows that lie in one piece

// LANES threads share a row, or a part of it, and take packs of V elements. BACK: from the end. OTHERS: without the
// element itself. TOTALS: of parts, the whole of which is left in `totals`; else they are what lies before a part.
template <int LANES, int THREADS, int V, bool BACK, bool OTHERS, bool TOTALS, class Scan, class I>
DEVICE void scan_rows(const Scan& scan, I rows, I n, bool whole, I parts, I share, typename Scan::State* totals)
{
    using State = typename Scan::State;
    constexpr int TEAMS = THREADS / LANES;
    const int lane = int(threadIdx.x) % LANES, team = int(threadIdx.x) / LANES;
    const bool packs = whole && scan.template allows<V>();
    for (I first = I(blockIdx.x) * TEAMS; first < rows * parts; first += I(gridDim.x) * TEAMS) {
        const bool active = first + team < rows * parts;
        const I mine = active ? first + team : 0, row = mine / parts, part = mine % parts;
        const I start = part * share, end = start + share < n ? start + share : n, base = row * n;
        State carry = Scan::neutral();
        if constexpr (LANES == THREADS && !TOTALS) {
            if (parts > 1)
                before<Scan, LANES, THREADS>(lane < part ? totals[row * parts + lane] : Scan::neutral(), carry);
        }
        for (I tile = start; tile < end; tile += LANES * V) {
            const I at = tile + lane * V;
            typename Scan::Element given[V], e[V];
            State s[V];
            if (active && packs && at < end) {
                scan.template read<V>(base + (BACK ? n - V - at : at), given);
            } else {
#pragma unroll
                for (int k = 0; k < V; ++k)
                    if (active && at + k < end)
                        scan.template read<1>(base + (BACK ? n - 1 - at - k : at + k), given + (BACK ? V - 1 - k : k));
            }
#pragma unroll
            for (int k = 0; k < V; ++k) {
                s[k] = Scan::neutral();
                if (active && at + k < end) {
                    e[k] = given[BACK ? V - 1 - k : k];
                    s[k] = Scan::state(e[k]);
                }
                if (k)
                    s[k] = Scan::joined(s[k - 1], s[k]);
            }
            State all;
            const State front = Scan::joined(carry, before<Scan, LANES, THREADS>(s[V - 1], all));
            carry = Scan::joined(carry, all);
            if constexpr (!TOTALS) {
                State found[V];
#pragma unroll
                for (int k = 0; k < V; ++k) {
                    const State one = OTHERS ? (k ? Scan::joined(front, s[k ? k - 1 : 0]) : front)
                                             : Scan::joined(front, s[k]);
                    found[BACK ? V - 1 - k : k] = one;
                }
                if (active && packs && at < end) {
                    scan.template write<V>(base + (BACK ? n - V - at : at), given, found);
                } else {
#pragma unroll
                    for (int k = 0; k < V; ++k)
                        if (active && at + k < end) {
                            constexpr int last = V - 1;
                            const int j = BACK ? last - k : k;
                            scan.template write<1>(base + (BACK ? n - 1 - at - k : at + k), given + j, found + j);
                        }
                }
            }
        }
        if constexpr (TOTALS) {
            if (active && lane == 0)
                totals[mine] = carry;
        }
    }
}

// ---------------------------------------------------------------- columns: neighbours belong to others

// Each thread goes through a column, or a part of it, a few elements at once.
template <bool BACK, bool OTHERS, bool TOTALS, class Scan, class I>
DEVICE void scan_columns(const Scan& scan, I columns, I inner, I n, I parts, I share, typename Scan::State* totals)
{
    using State = typename Scan::State;
    constexpr int AHEAD = 4;
    for (I u = thread<I>(); u < columns * parts; u += threads<I>()) {
        const I column = u % columns, part = u / columns, start = part * share;
        const I end = start + share < n ? start + share : n;
        const I base = column / inner * inner * n + column % inner;
        State carry = Scan::neutral();
        if constexpr (!TOTALS)
            for (I before = 0; before < part; ++before)
                carry = Scan::joined(carry, totals[before * columns + column]);
        for (I j = start; j < end; j += AHEAD) {
            typename Scan::Element e[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; ++k)
                if (j + k < end)
                    scan.template read<1>(base + (BACK ? n - 1 - j - k : j + k) * inner, e + k);
#pragma unroll
            for (int k = 0; k < AHEAD; ++k)
                if (j + k < end) {
                    const State next = Scan::joined(carry, Scan::state(e[k]));
                    if constexpr (!TOTALS) {
                        const I place = base + (BACK ? n - 1 - j - k : j + k) * inner;
                        scan.template write<1>(place, e + k, OTHERS ? &carry : &next);
                    }
                    carry = next;
                }
        }
        if constexpr (TOTALS)
            totals[u] = carry;
    }
}

}  // namespace gradtape
