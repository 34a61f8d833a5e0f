#include "sim/join/link.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "sim/join/coordinator.h"
#include "sim/join/tcp.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kLinkWait{50};
constexpr int kClockSamples = 8;

int64_t parsed_number(const std::string& text) { return std::strtoll(text.c_str(), nullptr, 10); }

}  // namespace

Link::Link(EventLoop& loop, Wire wire) : loop_(loop), wire_(std::move(wire)) {
  loop_.watch(wire_.fd(), [this] { on_readable(); });
}

Link::~Link() { loop_.forget(wire_.fd()); }

void Link::note_over(int code, const std::string& why) {
  if (over_) return;
  over_ = true;
  over_code_ = code;
  over_why_ = why;
  loop_.forget(wire_.fd());
}

void Link::check() const {
  if (over_) throw RunOver(over_code_, over_why_);
}

void Link::on_readable() {
  Message message;
  flush();
  while (!over_) {
    switch (wire_.receive(&message)) {
      case Channel::Got::nothing:
        return;
      case Channel::Got::closed:
        return note_over(kExitLostCoordinator, "the process of rank 0 is gone: nothing was judged");
      case Channel::Got::message:
        on_message(message);
    }
  }
}

void Link::on_message(const Message& message) {
  if (message.size() == 3 && message[0] == "over")
    return note_over(static_cast<int>(std::clamp<int64_t>(parsed_number(message[1]), 0, 255)),
                     message[2]);
  const std::string& id = message[0];
  if (const auto awaited = answers_.find(id); awaited != answers_.end()) {
    awaited->second = Message(message.begin() + 1, message.end());
  } else if (const auto call = callbacks_.find(id); call != callbacks_.end()) {
    const auto then = std::move(call->second);
    callbacks_.erase(call);
    then();
  } else if (const size_t colon = id.find(':'); id.starts_with('c') && colon != id.npos) {
    Message reply = message;
    reply[0] = id.substr(colon + 1);
    if (on_reply_) on_reply_(parsed_number(id.substr(1, colon - 1)), reply);
  }
}

// What is not taken now goes out from the loop.
void Link::pass(const Message& message) {
  if (over_) return;
  wire_.send(message);
  flush();
}

void Link::flush() {
  if (!wire_.flush()) return note_over(kExitLostCoordinator, "the process of rank 0 takes nothing");
  loop_.watch_writable(wire_.fd(), wire_.has_unsent());
}

std::string Link::send(Message message) {
  std::string id = "m" + std::to_string(++last_id_);
  message.insert(message.begin() + 1, id);
  pass(message);
  return id;
}

Link::Message Link::request(Message message, Deadline deadline) {
  const std::string what = message.front() + (message.size() > 1 ? " " + message[1] : "");
  check();
  const std::string id = send(std::move(message));
  answers_[id];
  while (answers_[id].empty()) {
    check();
    if (time_left(deadline).count() == 0) {
      answers_.erase(id);
      throw RunOver(kExitLostCoordinator, "no answer to \"" + what.substr(0, 80) + "\" in time");
    }
    loop_.wait(std::min(kLinkWait, time_left(deadline)));
  }
  Message answer = std::move(answers_[id]);
  answers_.erase(id);
  return answer;
}

std::string Link::get(const std::string& key, Deadline deadline) {
  return request({"get", key}, deadline).front();
}

void Link::set(const std::string& key, const std::string& value, Deadline deadline) {
  request({"set", key, value}, deadline);
}

void Link::when_set(const std::string& key, std::function<void()> then) {
  callbacks_[send({"get", key})] = std::move(then);
}

void Link::forward(int64_t client, const Message& message, const std::string& prefix) {
  if (message.size() < 3 || over_) return;
  Message tagged = message;
  tagged[1] = "c" + std::to_string(client) + ":" + message[1];
  tagged[2] = prefix + message[2];
  pass(tagged);
}

std::string Link::own_address() const { return lockstep::own_address(wire_.fd()); }

int64_t Link::clock_offset_ns(Deadline deadline, int64_t* uncertainty_ns) {
  int64_t offset = 0;
  *uncertainty_ns = std::numeric_limits<int64_t>::max();
  for (int sample = 0; sample < kClockSamples; ++sample) {
    const int64_t before = now_ns();
    const int64_t theirs = parsed_number(request({"clock"}, deadline).front());
    const int64_t after = now_ns();
    if ((after - before) / 2 >= *uncertainty_ns) continue;
    *uncertainty_ns = (after - before) / 2;
    offset = theirs - (before + after) / 2;
  }
  return offset;
}

}  // namespace lockstep
