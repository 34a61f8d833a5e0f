#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Sums of W ranks' contributions in exactly the order in which Gloo's algorithms add them, element
// by element (docs/numerics.md, "Order of addition"; tested against libgloo itself). Written for
// clarity, not speed, and independent of every communicator: it is the oracle of lane replay.
// inputs: W pointers to `count` elements each. out: `count` elements, may not alias an input.
// T: float, double, Float16, Brain16 (golden/half_types.h). algorithm: ring | bcube |
// halving_doubling | ring_chunked | rank_order; any other word aborts. "ring/4", or another word
// with a number: communicator hierarchical with so many ranks on each host, the last maybe with
// fewer: each host's sum by itself, then the sum of these, both in the order of that algorithm.
// "shard_tree", of reducer invariant, no algorithm of Gloo's: halves of the smallest power of two
// that holds all inputs, each halved again; a half without inputs adds nothing.
template <class T>
void sum_in_order(const std::string& algorithm, const std::vector<const T*>& inputs, int64_t count,
                  T* out);

extern template void sum_in_order<float>(const std::string&, const std::vector<const float*>&,
                                         int64_t, float*);
extern template void sum_in_order<double>(const std::string&, const std::vector<const double*>&,
                                          int64_t, double*);

// Depth of the addition tree of an algorithm: the k of the communication bound, W - 1 for a chain.
int64_t addition_depth(const std::string& algorithm, int64_t world_size);

}  // namespace lockstep
