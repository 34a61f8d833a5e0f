#pragma once

#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include "scenarios/base/clock.h"
#include "sim/join/wire.h"
#include "sim/launch/event_loop.h"

namespace lockstep {

// Thrown by what waits on a Link: the coordinator has said that all is over, or is gone.
class RunOver : public std::runtime_error {
 public:
  RunOver(int code, const std::string& why) : std::runtime_error(why), code_(code) {}
  int code() const { return code_; }  // the exit code of every rank

 private:
  int code_;
};

// A member's connection to the coordinator of its run (coordinator.h says what is spoken): its own
// requests, and those of its worker processes, passed on as they come. One thread, the event
// loop's; a request runs the loop until it is answered, so it is not for handlers.
class Link {
 public:
  using Message = Wire::Message;
  using OnReply = std::function<void(int64_t client, const Message& reply)>;

  Link(EventLoop& loop, Wire wire);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Everything after the number of the request. Throws RunOver, also past the deadline.
  Message request(Message message, Deadline deadline);
  std::string get(const std::string& key, Deadline deadline);
  void set(const std::string& key, const std::string& value, Deadline deadline);
  // Calls back when the key is set; from the loop.
  void when_set(const std::string& key, std::function<void()> then);

  // A store message of local worker `client`, with `prefix` before its key; its answer goes to
  // on_reply. Other messages are ignored.
  void forward(int64_t client, const Message& message, const std::string& prefix);
  void on_reply(OnReply handler) { on_reply_ = std::move(handler); }

  // From now on all is over for this member: everything throws RunOver with this code.
  void abandon(int code, const std::string& why) { note_over(code, why); }
  // Throws RunOver if all is over.
  void check() const;
  // Nanoseconds to add to this host's clock for the coordinator's; `uncertainty_ns` either way.
  int64_t clock_offset_ns(Deadline deadline, int64_t* uncertainty_ns);
  std::string own_address() const;  // numeric: of this end of the connection

 private:
  void on_readable();
  void on_message(const Message& message);
  void note_over(int code, const std::string& why);
  std::string send(Message message);
  void pass(const Message& message);
  void flush();

  EventLoop& loop_;
  Wire wire_;
  uint64_t last_id_ = 0;
  OnReply on_reply_;
  std::map<std::string, Message> answers_;  // awaited by request(): empty until there
  std::map<std::string, std::function<void()>> callbacks_;
  bool over_ = false;
  int over_code_ = 0;
  std::string over_why_;
};

}  // namespace lockstep
