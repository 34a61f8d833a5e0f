#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "scenarios/base/clock.h"

namespace lockstep {

// A ring of fixed-size slots in shared memory from one producer to several consumers: how a golden
// run streams its states to the ranks, and rank 0 its own to the golden run of lane rounding.
// Items are numbered from 0 without gaps (item 0 is the state before the first step). The producer
// waits while the slowest consumer is `slots` items behind; a consumer waits for the producer.
// Waiting sleeps on a futex. Works between processes (a file in the run directory, mapped by both)
// and between threads (anonymous memory). Thread rule: one thread per producer or consumer.
// No LibTorch.
class StateStream {
 public:
  struct Shape {
    int64_t slot_bytes = 0;
    int64_t slots = 2;
    int64_t consumers = 1;
  };

  // Creates the file (0600, preallocated: a full disk is an error here, not a SIGBUS later) and
  // maps it. Throws std::system_error. The other side waits in open() until it is there.
  static std::unique_ptr<StateStream> create(const std::string& path, const Shape& shape);
  // Blocks until create() has finished or the deadline has passed: nullptr then.
  static std::unique_ptr<StateStream> open(const std::string& path, Deadline deadline);
  static std::unique_ptr<StateStream> in_memory(const Shape& shape);
  ~StateStream();
  StateStream(const StateStream&) = delete;
  StateStream& operator=(const StateStream&) = delete;

  const Shape& shape() const;

  // Producer: the slot for the next item, 64-byte aligned; nullptr past the deadline.
  std::byte* begin_write(Deadline deadline);
  void end_write();
  // The producer will write no more; readers of later items get nullptr at once.
  void finish();
  // All consumers have left: nobody will read what is written from now on.
  bool abandoned() const;

  // Consumer `consumer`: item `item` (each read once, in order); nullptr past the deadline or if
  // the producer has finished before it.
  const std::byte* begin_read(int64_t consumer, int64_t item, Deadline deadline);
  void end_read(int64_t consumer);
  // This consumer will read no more: the producer no longer waits for it. Between begin_read() and
  // end_read() too.
  void leave(int64_t consumer);

 private:
  struct Header;
  static std::unique_ptr<StateStream> make(int fd, const Shape& shape);  // fd -1: anonymous
  StateStream(std::byte* base, int64_t mapped_bytes);
  Header* header() const;
  std::byte* slot(int64_t item) const;

  std::byte* base_;
  int64_t mapped_bytes_;
};

}  // namespace lockstep
