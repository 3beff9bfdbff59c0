// Neighbouring elements that move through memory as accesses of up to 16 bytes, and where a thread stands in its grid.
#pragma once

#include "types.cuh"

namespace gradtape {

// A number of elements as a type, so that a generic lambda can be made for it.
template <int N>
struct Width {
    static constexpr int value = N;
};

template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
    T at[N];
    DEVICE T& operator[](int j) { return at[j]; }
    DEVICE const T& operator[](int j) const { return at[j]; }
};

// N elements from a place that is a multiple of N in an array that `is_aligned` (any, if N is 1).
template <int N, class T, class I>
DEVICE Pack<T, N> load(const T* array, I place)
{
    return *reinterpret_cast<const Pack<T, N>*>(array + place);
}

template <class T, int N, class I>
DEVICE void store(T* array, I place, const Pack<T, N>& pack)
{
    *reinterpret_cast<Pack<T, N>*>(array + place) = pack;
}

// Whether packs of N elements may be read from the start of each array.
template <int N, class... T>
DEVICE bool is_aligned(const T*... arrays)
{
    return (true && ... && (reinterpret_cast<uint64>(arrays) % (sizeof(T) * N) == 0));
}

// The number of a thread in the grid, and how many there are.
template <class I> DEVICE I thread() { return I(blockIdx.x) * I(blockDim.x) + I(threadIdx.x); }
template <class I> DEVICE I threads() { return I(gridDim.x) * I(blockDim.x); }

}  // namespace gradtape
