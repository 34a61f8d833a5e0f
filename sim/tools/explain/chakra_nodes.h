#pragma once

#include <cstdint>
#include <string>

#include "sim/tools/explain/chakra_trace.h"

namespace lockstep {

// A node of an execution trace, in whatever form it is written.
struct ChakraNode {
  std::string name;
  int type = 0;  // of et_def.proto; 0: the trace does not say
  double micros = -1;
  bool on_cpu = true;
};

constexpr int kChakraCollective = 7;     // COMM_COLL_NODE of et_def.proto
constexpr double kChakraLongest = 1e12;  // microseconds of a node: a week and more

// Adds up what nodes say; nothing else of them is kept.
class ChakraNodes {
 public:
  void add(const ChakraNode& node) {
    all_.add(node);
    if (!node.on_cpu) kernels_.add(node);
  }
  // Of kernels where there are any.
  ChakraTrace finish(const std::string& file) const;

 private:
  struct Sum {
    int64_t nodes = 0, collectives = 0;
    double compute_us = 0, communication_us = 0;
    bool timed = false;

    void add(const ChakraNode& node);
  };

  Sum all_, kernels_;
};

// Is this the beginning of messages of protobuf, each behind its length, GlobalMetadata first?
bool is_chakra_messages(std::string_view head);
// Of all of them. Bad input: what is cut short or no such message, with the place.
Expected<ChakraTrace> chakra_messages_of(std::string_view bytes, const std::string& path);

}  // namespace lockstep
