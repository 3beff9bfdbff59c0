// Several elementwise jobs of one formula as one kernel: each block works for one of them.
#pragma once

#include "types.cuh"

#ifdef __EDG__
#define GRID_CONSTANT __grid_constant__
#else
#define GRID_CONSTANT
#endif

namespace gradtape {

// Given by value: where the arrays of each member are, how many elements they have, and its first block. Members that are
// not there begin where the last one ends.
template <int MEMBERS, int ARRAYS>
struct Table {
    uint64 arrays[MEMBERS][ARRAYS];
    int64 extents[MEMBERS];
    int32 first[MEMBERS + 1];

    // The member that a block works for.
    DEVICE int32 member(int32 block) const
    {
        int32 low = 0, high = MEMBERS;  // first[low] <= block < first[high]
        while (high - low > 1) {
            const int32 middle = (low + high) / 2;
            if (first[middle] <= block)
                low = middle;
            else
                high = middle;
        }
        return low;
    }

    template <class T> DEVICE T* array(int32 member, int k) const { return reinterpret_cast<T*>(arrays[member][k]); }
};

}  // namespace gradtape
