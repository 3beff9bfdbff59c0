// Where threads meet: the block's barrier, and shuffles, votes and barriers within a warp.

#include "machine.hpp"

#include <cstdio>
#include <cstring>

namespace emulator {

namespace {

constexpr const char* NAMES[] = {"__syncwarp",     "__shfl_sync",   "__shfl_up_sync", "__shfl_down_sync",
                                 "__shfl_xor_sync", "__ballot_sync", "__any_sync",     "__all_sync"};

Fiber* warp_of(const Fiber& fiber) { return fibers + fiber.warp * WARP; }

unsigned lanes_of(const Fiber& fiber) {
    const unsigned rest = block.threads - fiber.warp * WARP;
    return rest < WARP ? rest : WARP;
}

bool named(unsigned mask, unsigned lane) { return mask >> lane & 1; }

// The lane a shuffle reads from; as the hardware has it, the own one where that would leave the segment.
unsigned source_of(const Fiber& fiber) {
    const unsigned lane = fiber.lane, width = unsigned(fiber.width);
    const unsigned first = lane & ~(width - 1), argument = unsigned(fiber.argument);
    switch (fiber.call) {
        case Collective::shuffle: return first | (argument & (width - 1));
        case Collective::shuffle_up: return argument > lane - first ? lane : lane - argument;
        case Collective::shuffle_down: return argument >= first + width - lane ? lane : lane + argument;
        default: {
            const unsigned source = lane ^ (argument & (WARP - 1));
            return source >= first + width ? lane : source;
        }
    }
}

void answer_shuffle(Fiber* warp, unsigned mask, unsigned lanes) {
    for (unsigned lane = 0; lane < lanes; lane++) {
        if (!named(mask, lane)) continue;
        const unsigned source = source_of(warp[lane]);
        if (source < lanes && named(mask, source)) {
            warp[lane].result = warp[source].value;
        } else {
            // Undefined on the device. Poison, since a sum that throws this lane away is right all the same.
            std::memset(&warp[lane].result, POISON, sizeof warp[lane].result);
        }
    }
}

void answer_vote(Fiber* warp, unsigned mask, unsigned lanes, Collective call) {
    unsigned ballot = 0;
    for (unsigned lane = 0; lane < lanes; lane++)
        if (named(mask, lane) && warp[lane].value != 0) ballot |= 1u << lane;
    std::uint64_t result = ballot;
    if (call == Collective::any) result = ballot != 0;
    if (call == Collective::all) result = ballot == mask;
    for (unsigned lane = 0; lane < lanes; lane++)
        if (named(mask, lane)) warp[lane].result = result;
}

// What each of the lanes knew of the others, all of them know now; and that they met at this time.
void order_memory(Fiber* warp, unsigned mask, unsigned lanes, unsigned time) {
    unsigned heard[WARP] = {};
    for (unsigned lane = 0; lane < lanes; lane++)
        for (unsigned other = 0; named(mask, lane) && other < WARP; other++)
            if (warp[lane].heard[other] > heard[other]) heard[other] = warp[lane].heard[other];
    for (unsigned lane = 0; lane < lanes; lane++)
        if (named(mask, lane)) heard[lane] = time;
    for (unsigned lane = 0; lane < lanes; lane++)
        if (named(mask, lane)) std::memcpy(warp[lane].heard, heard, sizeof heard);
}

bool waits_at(const Fiber& fiber, Collective call, unsigned mask) {
    return fiber.state == State::at_collective && fiber.call == call && fiber.mask == mask;
}

// Lets the lanes of `mask` go on if all of them are there. __syncwarp does not wait for lanes that have ended.
void complete_if_all_are_there(Fiber* warp, unsigned lanes, Collective call, unsigned mask) {
    unsigned there = 0;
    for (unsigned lane = 0; lane < lanes; lane++) {
        if (!named(mask, lane)) continue;
        if (waits_at(warp[lane], call, mask)) there |= 1u << lane;
        else if (call != Collective::warp_barrier || warp[lane].state != State::ended) return;
    }
    if (call == Collective::warp_barrier) order_memory(warp, there, lanes, ++block.time[warp->warp]);
    else if (call >= Collective::ballot) answer_vote(warp, mask, lanes, call);
    else answer_shuffle(warp, mask, lanes);
    for (unsigned lane = 0; lane < lanes; lane++)
        if (named(there, lane)) warp[lane].state = State::ready;
}

void refuse_wrong_mask(const Fiber& fiber) {
    const char* name = name_of(fiber.call);
    if (!named(fiber.mask, fiber.lane))
        fault("mask", nullptr, fiber.site, "lane %u calls %s with mask 0x%08x, which does not name the lane itself",
              fiber.lane, name, fiber.mask);
    if (fiber.width < 1 || fiber.width > int(WARP) || (fiber.width & (fiber.width - 1)) != 0)
        fault("mask", nullptr, fiber.site, "%s wants a width of 1, 2, 4, 8, 16 or 32, got %d", name, fiber.width);
    if (fiber.call == Collective::warp_barrier) return;
    for (unsigned lane = 0; lane < WARP; lane++) {
        if (!named(fiber.mask, lane)) continue;
        if (lane >= lanes_of(fiber))
            fault("mask", nullptr, fiber.site,
                  "%s with mask 0x%08x names lane %u, but this warp has %u lanes: launch whole warps, or leave it out",
                  name, fiber.mask, lane, lanes_of(fiber));
        if (warp_of(fiber)[lane].state == State::ended)
            fault("mask", nullptr, fiber.site, "%s with mask 0x%08x names lane %u, which has ended", name, fiber.mask,
                  lane);
    }
}

void refuse_other_call(const Fiber& fiber) {
    const Fiber* warp = warp_of(fiber);
    for (unsigned lane = 0; lane < lanes_of(fiber); lane++) {
        const Fiber& other = warp[lane];
        if (other.state != State::at_collective || waits_at(other, fiber.call, fiber.mask)) continue;
        // If only one of the two names the other, the other comes there later.
        if (!named(fiber.mask, lane) || !named(other.mask, fiber.lane)) continue;
        fault("mask", nullptr, fiber.site,
              "lane %u calls %s with mask 0x%08x while lane %u waits in line %d for %s with mask 0x%08x", fiber.lane,
              name_of(fiber.call), fiber.mask, lane, other.site.line, name_of(other.call), other.mask);
    }
}

void release_block() {
    block.votes_seen = block.votes;
    block.votes = 0;
    block.arrived = 0;
    for (unsigned i = 0; i < block.threads; i++) fibers[i].state = State::ready;
    pass_block_barrier();
}

// Threads that wait at one place, or have ended, told as ranges of their numbers.
int tell_group(char* text, std::size_t room, unsigned first, unsigned last) {
    const Fiber& fiber = fibers[first];
    const char* several = first == last ? "" : "s";
    char numbers[32];
    if (first == last) std::snprintf(numbers, sizeof numbers, "%u", first);
    else std::snprintf(numbers, sizeof numbers, "%u-%u", first, last);
    if (fiber.state == State::ended)
        return std::snprintf(text, room, "; thread%s %s: ended", several, numbers);
    if (fiber.state == State::at_barrier)
        return std::snprintf(text, room, "; thread%s %s: line %d, __syncthreads", several, numbers, fiber.site.line);
    return std::snprintf(text, room, "; thread%s %s: line %d, %s with mask 0x%08x", several, numbers, fiber.site.line,
                         name_of(fiber.call), fiber.mask);
}

bool waits_alike(const Fiber& a, const Fiber& b) {
    if (a.state != b.state) return false;
    if (a.state == State::ended) return true;
    if (a.site.file != b.site.file || a.site.line != b.site.line) return false;
    return a.state == State::at_barrier || (a.call == b.call && a.mask == b.mask);
}

}  // namespace

const char* name_of(Collective call) { return NAMES[int(call)]; }

void thread_ended(Fiber& fiber) {
    block.ended++;
    Fiber* warp = warp_of(fiber);
    for (unsigned lane = 0; lane < lanes_of(fiber); lane++) {
        Fiber& other = warp[lane];
        if (other.state != State::at_collective || !named(other.mask, fiber.lane)) continue;
        if (other.call != Collective::warp_barrier)
            fault("mask", nullptr, other.site, "%s with mask 0x%08x names lane %u, which has ended", name_of(other.call),
                  other.mask, fiber.lane);
        complete_if_all_are_there(warp, lanes_of(fiber), other.call, other.mask);
    }
}

void report_deadlock() {
    static char text[3000];
    std::size_t used = 0;
    for (unsigned first = 0; first < block.threads && used < sizeof text - 200;) {
        unsigned last = first;
        while (last + 1 < block.threads && waits_alike(fibers[first], fibers[last + 1])) last++;
        used += std::size_t(tell_group(text + used, sizeof text - used, first, last));
        first = last + 1;
    }
    current = nullptr;
    fault("deadlock", nullptr, {nullptr, 0}, "no thread of the block can go on%s", text);
}

}  // namespace emulator

using namespace emulator;

// The block's barrier; the result is the count of threads that gave a nonzero `vote`.
extern "C" int emulator_syncthreads(int vote, const char* file, int line) {
    Fiber& self = *current;
    self.site = {file, line};
    if (block.arrived == 0) {
        block.barrier = self.site;
    } else if (block.barrier.line != line || std::strcmp(block.barrier.file, file) != 0) {
        fault("divergent barrier", nullptr, self.site,
              "thread %u is at __syncthreads in line %d while others of its block wait at __syncthreads in line %d",
              self.number, line, block.barrier.line);
    }
    block.votes += vote != 0;
    self.state = State::at_barrier;
    if (++block.arrived == block.threads) release_block();
    else wait();
    return int(block.votes_seen);
}

extern "C" std::uint64_t emulator_collective(int call, unsigned mask, std::uint64_t value, int argument, int width,
                                             const char* file, int line) {
    Fiber& self = *current;
    self.site = {file, line};
    self.call = Collective(call);
    self.mask = mask;
    self.value = value;
    self.argument = argument;
    self.width = width;
    refuse_wrong_mask(self);
    refuse_other_call(self);
    self.state = State::at_collective;
    complete_if_all_are_there(warp_of(self), lanes_of(self), self.call, mask);
    if (self.state != State::ready) wait();
    return self.result;
}

extern "C" void emulator_trap(const char* words, const char* file, int line) {
    fault("trap", nullptr, {file, line}, "%s", words);
}
