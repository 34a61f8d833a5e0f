#if __has_include(<gloo/transport/tcp/listener.h>)

#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>

#include <cstring>
#include <type_traits>
#include <utility>

#include "reducer/gloo/gloo_context.h"
#include "scenarios/base/error.h"
#include "scenarios/base/random_bytes.h"

namespace lockstep {
namespace {

namespace tcp = gloo::transport::tcp;

using Number = decltype(std::declval<tcp::Address>().getSeq());

// Of 62 bits: -1 means none, and a difference of two has to fit.
Number random_number() {
  uint64_t number = 0;
  std::memcpy(&number, random_bytes(sizeof number).data(), sizeof number);
  return static_cast<Number>(number >> 2);
}

class NumberedPair : public tcp::Pair {
 public:
  NumberedPair(tcp::Context* context, tcp::Device* device, int peer,
               std::chrono::milliseconds timeout)
      : Pair(context, device, peer, timeout) {
    self_ = tcp::Address(self_.getSockaddr(), random_number());
  }
};

class NumberedContext : public tcp::Context {
 public:
  using tcp::Context::Context;
  using tcp::Context::createAndConnectAllPairs;
  using tcp::Context::createPair;

  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override {
    auto& pair = pairs_[static_cast<size_t>(peer)];
    pair = std::make_unique<NumberedPair>(this, device_.get(), peer, getTimeout());
    return pair;
  }

#if __has_include(<gloo/common/store.h>)
  // Overrides that of 2024 and later, which makes pairs past createPair(). Each rank leaves the
  // addresses of its pairs, by rank, under its own.
  virtual void createAndConnectAllPairs(std::shared_ptr<gloo::IStore> store) {
    std::vector<char> own;
    for (int peer = 0; peer < size; ++peer) {
      const std::vector<char> address = createPair(peer)->address().bytes();
      own.insert(own.end(), address.begin(), address.end());
    }
    store->set(std::to_string(rank), own);
    const size_t bytes = own.size() / static_cast<size_t>(size);
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      const std::string key = std::to_string(peer);
      store->wait({key}, getTimeout());
      const std::vector<char> all = store->get(key);
      LOCKSTEP_CHECK(all.size() == own.size(), "ranks of one group use one kind of device");
      const char* const address = all.data() + bytes * static_cast<size_t>(rank);
      getPair(peer)->connect({address, address + bytes});
    }
  }
#endif
};

class NumberedDevice : public tcp::Device {
 public:
  using tcp::Device::Device;

  std::shared_ptr<gloo::transport::Context> createContext(int rank, int size) override {
    return std::make_shared<NumberedContext>(shared_from_this(), rank, size);
  }
};

// The newest ask whether to connect only when something is sent.
template <class Device, class Attributes>
std::shared_ptr<Device> make_device(const Attributes& attributes) {
  if constexpr (std::is_constructible_v<Device, Attributes, bool>) {
    return std::make_shared<Device>(attributes, false);
  } else {
    return std::make_shared<Device>(attributes);
  }
}

}  // namespace

std::shared_ptr<gloo::transport::Device> make_guarded_device(const std::string& address,
                                                             const std::string&) {
  tcp::attr attributes;
  attributes.hostname = address;
  return make_device<NumberedDevice>(tcp::CreateDeviceAttr(attributes));
}

}  // namespace lockstep

#endif
