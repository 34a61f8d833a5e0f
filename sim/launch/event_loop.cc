#include "sim/launch/event_loop.h"

#include <sys/epoll.h>

#include <cerrno>
#include <system_error>

namespace lockstep {

EventLoop::EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_.valid()) throw std::system_error(errno, std::generic_category(), "epoll_create1");
}

void EventLoop::watch(int fd, Handler handler) {
  handlers_[fd] = std::make_shared<Handler>(std::move(handler));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
}

void EventLoop::watch_writable(int fd, bool on) {
  if (handlers_.count(fd) == 0) return;
  epoll_event event{};
  event.events = on ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.fd = fd;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::watch_hang_up(int fd, Handler handler) {
  epoll_event event{};
  event.events = EPOLLONESHOT;  // errors and hang-ups come unasked
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0)
    handlers_[fd] = std::make_shared<Handler>(std::move(handler));
}

void EventLoop::forget(int fd) {
  if (handlers_.erase(fd) > 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void EventLoop::wait(std::chrono::milliseconds timeout) {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, static_cast<int>(timeout.count()));
  if (count < 0 && errno != EINTR)
    throw std::system_error(errno, std::generic_category(), "epoll_wait");
  for (int i = 0; i < count; ++i) {
    const auto found = handlers_.find(events[i].data.fd);
    if (found == handlers_.end()) continue;
    const std::shared_ptr<Handler> handler = found->second;  // it may forget itself
    (*handler)();
  }
}

}  // namespace lockstep
