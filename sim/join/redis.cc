#include "sim/join/redis.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace lockstep {
namespace {

constexpr size_t kAnswerBytesMax = 1 << 20;

std::string encode(const std::vector<std::string>& command) {
  std::string text = fmt::format("*{}\r\n", command.size());
  for (const std::string& word : command) text += fmt::format("${}\r\n{}\r\n", word.size(), word);
  return text;
}

}  // namespace

Redis::Redis(const HostPort& server, Deadline deadline) : server_(server), deadline_(deadline) {
  std::string why;
  fd_ = connect_to(server_, deadline_, &why);
  if (!fd_.valid()) throw std::runtime_error("Redis at " + why);
}

void Redis::fail(const std::string& why) const {
  throw std::runtime_error(fmt::format("Redis at {}: {}", to_text(server_), why));
}

void Redis::receive() {
  char buffer[4096];
  pollfd ready{fd_.get(), POLLIN, 0};
  if (::poll(&ready, 1, static_cast<int>(time_left(deadline_).count())) == 0)
    fail("no answer in time");
  const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n <= 0) fail(n == 0 ? "it has closed the connection" : std::strerror(errno));
  in_.append(buffer, static_cast<size_t>(n));
  if (in_.size() > kAnswerBytesMax) fail("an answer without an end");
}

std::string Redis::take(size_t bytes) {
  while (in_.size() < bytes) receive();
  std::string taken = in_.substr(0, bytes);
  in_.erase(0, bytes);
  return taken;
}

std::string Redis::take_line() {
  size_t end = 0;
  while ((end = in_.find("\r\n")) == std::string::npos) receive();
  const std::string line = take(end + 2);
  return line.substr(0, end);
}

std::optional<std::string> Redis::call(const std::vector<std::string>& command) {
  const std::string text = encode(command);
  if (::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(text.size()))
    fail("it takes no command");
  const std::string line = take_line();
  if (line.empty()) fail("an empty answer");
  const std::string rest = line.substr(1);
  if (line[0] == '-') fail(rest);
  if (line[0] != '$') return rest;  // "+OK" or ":1"
  const int64_t length = std::strtoll(rest.c_str(), nullptr, 10);
  if (length < 0) return std::nullopt;
  if (length > static_cast<int64_t>(kAnswerBytesMax)) fail("an answer that is too long");
  const std::string value = take(static_cast<size_t>(length));
  take(2);
  return value;
}

}  // namespace lockstep
