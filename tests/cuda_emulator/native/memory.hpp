// Memory that kernels may touch, and what is known of each of its bytes.
#pragma once

#include "machine.hpp"

#include <string>
#include <vector>

namespace emulator {

enum class Kind { read, read_only, write, atomic };

// What is known of one byte. All but `DEFINED` hold for one launch, or for one block in shared memory.
enum : unsigned char { READ = 1, WRITTEN = 2, READ_ONLY = 4, DEFINED = 8 };

// Who touched a few bytes last. Epochs are counted over all launches: one for each stretch of a block between two
// barriers.
struct Cell {
    std::uint32_t write_epoch, read_epoch;
    std::uint32_t write_time, read_time;  // of the warp, see Block::time
    std::uint32_t readers;                // lanes of `reader_warp` that no __syncwarp has put in order since
    std::uint16_t writer, reader_warp;
    bool atomic;          // the last write was one
    bool several_warps;   // read in `read_epoch`
    bool several_blocks;  // read in this launch
};

// As Python reads it; `native.py` has the same layout.
struct Traffic {
    std::uint64_t reads, bytes_read, unique_read;
    std::uint64_t writes, bytes_written, unique_written;
    std::uint64_t atomics, wide_reads, wide_writes;  // wide: 16 bytes at once
    std::uint64_t sectors_read, sectors_written;     // of device memory, where warps are watched
    std::uint64_t passes, instructions;              // of shared memory, where warps are watched
};

struct Region {
    std::uintptr_t begin, end;
    std::string name;
    bool shared;        // of a block
    bool live;          // false: freed
    std::uint32_t seen; // the launch that touched it last; of shared memory, the block
    unsigned grain;     // bytes for each cell: 4, and less once somebody touches less
    std::vector<unsigned char> bytes;
    std::vector<Cell> cells;
    Traffic traffic;

    Region(std::uintptr_t first, std::uint64_t size, std::string called, bool of_a_block)
        : begin(first), end(first + size), name(std::move(called)), shared(of_a_block), live(true), seen(0), grain(4),
          bytes(size), traffic{} {}
};

// memory.cpp
Region* region_at(std::uintptr_t address);  // also a freed one; null if the address is in none
const Region* region_near(std::uintptr_t address, std::uint64_t distance);
bool in_a_module(std::uintptr_t address);
void set_shared_memory();

// accesses.cpp
void refine(Region& region, unsigned grain);

// warps.cpp
void note_touch(Region& region, std::uintptr_t address, std::uint64_t size, bool writes, const void* place);
void forget_touches();
void count_touches();

}  // namespace emulator
