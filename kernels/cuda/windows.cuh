// Windows that slide over images of up to three axes, and over one axis of anything.
#pragma once

#include "teams.cuh"

namespace gradtape {

// ---------------------------------------------------------------- one axis

// Windows of (before, n, after, window) elements added up where they were taken from: (before, length, after). A thread
// adds up what belongs to its element, window by window.
template <class Monoid, class T, class I>
DEVICE void fold(T* out, const T* g, I size, I length, I after, I n, I window, I stride, I dilation)
{
    using A = decltype(widen(T{}));
    for (I u = thread<I>(); u < size; u += threads<I>()) {
        const I column = u % after, place = u / after % length, row = u / after / length;
        A total = Monoid::template neutral<A>();
        for (I w = 0; w < window; ++w) {
            const I distance = place - w * dilation, t = distance / stride;
            if (distance >= 0 && t * stride == distance && t < n)
                total = Monoid::of(total, A(widen(g[((row * n + t) * after + column) * window + w])));
        }
        out[u] = stored<T>(total);
    }
}

// ---------------------------------------------------------------- images

// An axis of `extent` elements with `count` windows: element w of window t is at t · stride + w · dilation - low.
template <class I>
struct Axis {
    I extent, count, window, stride, dilation, low;
    DEVICE I place(I t, I w) const { return t * stride + w * dilation - low; }
    // The elements of window t that lie inside.
    DEVICE I first(I t) const
    {
        const I before = low - t * stride;
        return before > 0 ? (before + dilation - 1) / dilation : 0;
    }
    DEVICE I end(I t) const
    {
        const I room = extent + low - t * stride;
        const I fitting = room > 0 ? (room + dilation - 1) / dilation : 0;
        return fitting < window ? fitting : window;
    }
    DEVICE I inside(I t) const { return end(t) > first(t) ? end(t) - first(t) : 0; }
    // The window of which the element at a place is element w; -1: there is none.
    DEVICE I owner(I place, I w) const
    {
        const I distance = place + low - w * dilation, t = distance / stride;
        return distance >= 0 && t * stride == distance && t < count ? t : -1;
    }
};

// Images (n, a, b, c, packs of channels) and their windows (n, windows of a, b and c, packs).
template <class I>
struct Images {
    Axis<I> a, b, c;
    I packs;

    // The number of a pack of an image, and of one of a window.
    DEVICE I element(I n, I i, I j, I k, I q) const
    {
        return (((n * a.extent + i) * b.extent + j) * c.extent + k) * packs + q;
    }
    DEVICE I result(I n, I t, I u, I v, I q) const
    {
        return (((n * a.count + t) * b.count + u) * c.count + v) * packs + q;
    }

    // For a pack of a window: function(number of the element in its window, number of the pack) for those inside.
    template <class F>
    DEVICE void elements_of(I number, F function) const
    {
        const I q = number % packs, v = number / packs % c.count, u = number / packs / c.count % b.count;
        const I row = number / packs / c.count / b.count, t = row % a.count, n = row / a.count;
        for (I i = a.first(t); i < a.end(t); ++i)
            for (I j = b.first(u); j < b.end(u); ++j)
                for (I k = c.first(v); k < c.end(v); ++k)
                    function((i * b.window + j) * c.window + k, element(n, a.place(t, i), b.place(u, j), c.place(v, k), q));
    }

    // For a pack of an image: function(number of the element in a window, number of the window's pack, how many elements
    // the window has inside) for all windows that it is in.
    template <class F>
    DEVICE void windows_of(I number, F function) const
    {
        const I q = number % packs, z = number / packs % c.extent, y = number / packs / c.extent % b.extent;
        const I row = number / packs / c.extent / b.extent, x = row % a.extent, n = row / a.extent;
        for (I i = 0; i < a.window; ++i) {
            const I t = a.owner(x, i);
            for (I j = 0; t >= 0 && j < b.window; ++j) {
                const I u = b.owner(y, j);
                for (I k = 0; u >= 0 && k < c.window; ++k) {
                    const I v = c.owner(z, k);
                    if (v >= 0)
                        function((i * b.window + j) * c.window + k, result(n, t, u, v, q),
                                 a.inside(t) * b.inside(u) * c.inside(v));
                }
            }
        }
    }
};

// Whether the next element of a window is chosen instead of the one before: of equal ones the first, NaN before all.
template <class A, class P>
DEVICE bool is_chosen(A next, A best, P none)
{
    return none || next > best || (next != next && best == best);
}

template <int V, class T, class I>
DEVICE void largest(T* out, const T* x, Images<I> images, I size)
{
    using A = decltype(widen(T{}));
    for (I u = thread<I>(); u < size; u += threads<I>()) {
        Pack<A, V> best;
#pragma unroll
        for (int j = 0; j < V; ++j)
            best[j] = lowest<A>();
        images.elements_of(u, [&](I, I at) {
            const Pack<T, V> pack = load<V>(x, at * V);
#pragma unroll
            for (int j = 0; j < V; ++j)
                best[j] = maximum(best[j], A(widen(pack.at[j])));
        });
        Pack<T, V> pack;
#pragma unroll
        for (int j = 0; j < V; ++j)
            pack[j] = stored<T>(best[j]);
        store(out, u * V, pack);
    }
}

// Which element of each window is the largest; `none` of one that has none.
template <int V, class P, class T, class I>
DEVICE void choose(P* chosen, const T* x, Images<I> images, I size, P none)
{
    using A = decltype(widen(T{}));
    for (I u = thread<I>(); u < size; u += threads<I>()) {
        Pack<A, V> best;
        Pack<P, V> which;
#pragma unroll
        for (int j = 0; j < V; ++j) {
            best[j] = A{};
            which[j] = none;
        }
        images.elements_of(u, [&](I w, I at) {
            const Pack<T, V> pack = load<V>(x, at * V);
#pragma unroll
            for (int j = 0; j < V; ++j) {
                const A next = widen(pack.at[j]);
                const bool taken = is_chosen(next, best[j], which[j] == none);
                best[j] = taken ? next : best[j];
                which[j] = taken ? P(w) : which[j];
            }
        });
        store(chosen, u * V, which);
    }
}

// Cotangents of windows to the elements that were chosen.
template <int V, class P, class T, class I>
DEVICE void route(T* out, const T* g, const P* chosen, Images<I> images, I size)
{
    using A = decltype(widen(T{}));
    for (I u = thread<I>(); u < size; u += threads<I>()) {
        Pack<A, V> total{};
        images.windows_of(u, [&](I w, I at, I) {
            const Pack<T, V> pack = load<V>(g, at * V);
            const Pack<P, V> which = load<V>(chosen, at * V);
#pragma unroll
            for (int j = 0; j < V; ++j)
                if (which.at[j] == P(w))
                    total[j] = total[j] + widen(pack.at[j]);
        });
        Pack<T, V> pack;
#pragma unroll
        for (int j = 0; j < V; ++j)
            pack[j] = stored<T>(total[j]);
        store(out, u * V, pack);
    }
}

// What another array has where the largest elements are; 0 for windows that have none.
template <int V, class T, class I>
DEVICE void pick(T* out, const T* other, const T* x, Images<I> images, I size)
{
    using A = decltype(widen(T{}));
    for (I u = thread<I>(); u < size; u += threads<I>()) {
        Pack<A, V> best{};
        Pack<I, V> where;
#pragma unroll
        for (int j = 0; j < V; ++j)
            where[j] = -1;
        images.elements_of(u, [&](I, I at) {
            const Pack<T, V> pack = load<V>(x, at * V);
#pragma unroll
            for (int j = 0; j < V; ++j) {
                const A next = widen(pack.at[j]);
                const bool taken = is_chosen(next, best[j], where[j] < 0);
                best[j] = taken ? next : best[j];
                where[j] = taken ? at * V + j : where[j];
            }
        });
        Pack<T, V> pack;
#pragma unroll
        for (int j = 0; j < V; ++j)
            pack[j] = where[j] < 0 ? T{} : other[where[j]];
        store(out, u * V, pack);
    }
}

template <int V, class T, class I>
DEVICE void mean(T* out, const T* x, Images<I> images, I size)
{
    using A = decltype(widen(T{}));
    for (I u = thread<I>(); u < size; u += threads<I>()) {
        Pack<A, V> total{};
        int count = 0;
        images.elements_of(u, [&](I, I at) {
            const Pack<T, V> pack = load<V>(x, at * V);
            ++count;
#pragma unroll
            for (int j = 0; j < V; ++j)
                total[j] = total[j] + widen(pack.at[j]);
        });
        Pack<T, V> pack;
#pragma unroll
        for (int j = 0; j < V; ++j)
            pack[j] = stored<T>(total[j] / A(count > 0 ? count : 1));
        store(out, u * V, pack);
    }
}

// Cotangents of windows, shared by their elements.
template <int V, class T, class I>
DEVICE void share(T* out, const T* g, Images<I> images, I size)
{
    using A = decltype(widen(T{}));
    for (I u = thread<I>(); u < size; u += threads<I>()) {
        Pack<A, V> total{};
        images.windows_of(u, [&](I, I at, I count) {
            const Pack<T, V> pack = load<V>(g, at * V);
#pragma unroll
            for (int j = 0; j < V; ++j)
                total[j] = total[j] + widen(pack.at[j]) / A(count);
        });
        Pack<T, V> pack;
#pragma unroll
        for (int j = 0; j < V; ++j)
            pack[j] = stored<T>(total[j]);
        store(out, u * V, pack);
    }
}

}  // namespace gradtape
