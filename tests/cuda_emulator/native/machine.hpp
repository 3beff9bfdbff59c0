// What the parts of the emulated device know of each other: the block that runs, its threads, faults.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>

namespace emulator {

constexpr unsigned WARP = 32;
constexpr unsigned MOST_THREADS = 1024;
constexpr int POISON = 0xff;  // as bytes of any float type: NaN

struct Index {
    unsigned x, y, z;
};

// A line of the kernel's text.
struct Site {
    const char* file;
    int line;
};

enum class State { ready, at_barrier, at_collective, ended };

// The order is known to `collectives.cpp` (names) and to `device.hpp` (calls).
enum class Collective : int { warp_barrier, shuffle, shuffle_up, shuffle_down, shuffle_xor, ballot, any, all };

// One thread of the block: a stack of its own, and what it waits for.
struct Fiber {
    jmp_buf context;
    bool started;
    State state;
    Site site;          // where it waits
    Collective call;    // and for what
    unsigned mask;
    int argument, width;
    std::uint64_t value, result;
    unsigned number, lane, warp;
    Index index;
    unsigned heard[WARP];  // the time of the last __syncwarp of each lane that this thread knows of
};

struct Block {
    unsigned threads;
    unsigned warps;
    unsigned arrived;  // at the block's barrier
    unsigned ended;
    Site barrier;      // where the first of those that arrived waits
    std::uint64_t votes, votes_seen;  // of __syncthreads_count and its kin
    unsigned time[MOST_THREADS / WARP];  // of each warp: how often __syncwarp ran
};

struct SharedVariable {
    std::uint64_t offset, size;
    const char* name;
};

// What Python hands over; `native.py` has the same layout.
struct Launch {
    void (*call)(void**);
    void** arguments;
    unsigned grid[3], block[3];
    std::uint64_t dynamic_shared;
    std::uint64_t seed;
    unsigned char* static_shared;
    const SharedVariable* variables;
    std::uint64_t variable_count;
    std::uint64_t static_limit, shared_limit;
    std::uint64_t most_steps;   // loads and stores of one block
    std::uint64_t watch_warps;  // or not (0)
};

// What Python reads after a launch; `native.py` has the same layout.
struct Report {
    char kind[32];
    char message[4000];
    Index block, thread;
    const void* place;  // an address in the kernel, or null
    Site site;          // or a line
};

extern Fiber* current;  // the thread that runs, or null between launches
extern Fiber fibers[MOST_THREADS];
extern Block block;
extern const Launch* launch;
extern Report report;

// fibers.cpp
void wait();                          // gives way until somebody sets the thread's state to `ready`
bool on_a_stack(std::uintptr_t address);
// Ends the launch. Never returns: fibers are left as they stand.
[[noreturn]] void fault(const char* kind, const void* place, Site site, const char* format, ...)
    __attribute__((format(printf, 4, 5)));

// collectives.cpp
void thread_ended(Fiber& fiber);
[[noreturn]] void report_deadlock();
const char* name_of(Collective call);

// accesses.cpp
extern unsigned block_number;  // of the block that runs, in the order of running
void begin_launch();
void begin_block();
void end_block();
void pass_block_barrier();
void fence();

std::uint64_t next_random(std::uint64_t& state);

}  // namespace emulator
