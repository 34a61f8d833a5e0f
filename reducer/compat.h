#pragma once

#include <c10/core/DeviceType.h>
#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

// What differs between the LibTorch and Gloo versions that we build with, told apart by what the
// types can do and never by version numbers. Templates: include what you pass to them.
namespace lockstep::compat {

// Gloo of 2022 takes its store by reference, that of 2025 by shared_ptr.
template <class Context, class Store, class Device>
void connect_full_mesh(Context& context, const std::shared_ptr<Store>& store, Device& device) {
  if constexpr (requires { context.connectFullMesh(store, device); }) {
    context.connectFullMesh(store, device);
  } else {
    context.connectFullMesh(*store, device);
  }
}

// A node of the autograd graph is held by a shared_ptr, in later versions by an intrusive_ptr.
template <class NodePtr>
auto share_node(NodePtr node) {
  using Node = typename NodePtr::element_type;
  if constexpr (std::is_same_v<NodePtr, std::shared_ptr<Node>>) {
    return node;
  } else {
    Node* const held = node.get();
    return std::shared_ptr<Node>(held, [kept = std::move(node)](Node*) mutable { kept.reset(); });
  }
}

// A new node of the graph, held as that version holds its nodes.
template <class Derived, class Node>
auto make_node() {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, Node>) {
    return c10::make_intrusive<Derived>();
  } else {
    return std::make_shared<Derived>();
  }
}

// Until 1.13 a ProcessGroup is the implementation; from 2.0 it dispatches to Backends.
template <class Group>
concept HasBackends = requires {
  typename Group::BackendType;
};

template <class Group, class Backend>
using BackendBase = std::conditional_t<HasBackends<Group>, Backend, Group>;

enum class BackendWord { gloo, custom };

// What c10d::Reducer takes, around an implementation for CPU tensors.
template <class Group, class Base, class Store>
c10::intrusive_ptr<Group> as_process_group(c10::intrusive_ptr<Base> backend,
                                           const c10::intrusive_ptr<Store>& store,
                                           BackendWord word) {
  if constexpr (!HasBackends<Group>) {
    return backend;
  } else {
    using Type = typename Group::BackendType;
    const Type type = word == BackendWord::gloo ? Type::GLOO : Type::CUSTOM;
    const int rank = backend->getRank();
    const int size = backend->getSize();
    c10::intrusive_ptr<Group> group;
    if constexpr (std::is_constructible_v<Group, c10::intrusive_ptr<Store>, int, int>) {
      group = c10::make_intrusive<Group>(store, rank, size);
    } else {
      using Options = typename Group::Options;
      group = c10::make_intrusive<Group>(store, rank, size,
                                         c10::make_intrusive<Options>(std::string("undefined")));
    }
    // Accelerators too: the reducer asks by the device of its buckets (seen in 2.14).
    for (const auto device :
         {c10::DeviceType::CPU, c10::DeviceType::PrivateUse1, c10::DeviceType::CUDA})
      group->setBackend(device, type, backend);
    if constexpr (requires { group->setDefaultBackend(type); }) group->setDefaultBackend(type);
    return group;
  }
}

template <class Tensor>
struct DdpArguments {
  std::vector<Tensor> parameters;
  std::vector<std::vector<size_t>> buckets;
  std::vector<size_t> limits;  // per bucket
  int64_t bucket_cap_bytes = 0;
  int64_t first_bucket_bytes = 0;
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = false;
  std::unordered_map<size_t, std::string> names;
  std::vector<bool> sparse;  // per parameter: expects a sparse gradient
};

// c10d::Reducer's constructor: with limits per bucket up to 2.6; later without, and with options of
// its own at the end, which stay off.
template <class Reducer, class Group, class Tensor>
std::shared_ptr<Reducer> make_ddp_reducer(const DdpArguments<Tensor>& a,
                                          const c10::intrusive_ptr<Group>& group) {
  using Tensors = std::vector<Tensor>;
  using Buckets = std::vector<std::vector<size_t>>;
  using Limits = std::vector<size_t>;
  using Names = std::unordered_map<size_t, std::string>;
  using GroupPtr = c10::intrusive_ptr<Group>;
  const auto make = [&](auto&&... rest) {
    return std::make_shared<Reducer>(a.parameters, a.buckets, std::forward<decltype(rest)>(rest)...,
                                     a.sparse, a.bucket_cap_bytes, a.find_unused_parameters,
                                     a.gradient_as_bucket_view, a.names, a.first_bucket_bytes);
  };
  const auto make_later = [&](auto&&... last) {
    return std::make_shared<Reducer>(a.parameters, a.buckets, group, a.sparse, a.bucket_cap_bytes,
                                     a.find_unused_parameters, a.gradient_as_bucket_view, a.names,
                                     a.first_bucket_bytes, std::forward<decltype(last)>(last)...);
  };
  if constexpr (std::is_constructible_v<Reducer, Tensors, Buckets, Limits, GroupPtr,
                                        std::vector<bool>, int64_t, bool, bool, Names, int64_t>) {
    return make(a.limits, group);
  } else if constexpr (std::is_constructible_v<Reducer, Tensors, Buckets, GroupPtr,
                                               std::vector<bool>, int64_t, bool, bool, Names,
                                               int64_t, bool, bool>) {
    return make_later(false, false);
  } else if constexpr (std::is_constructible_v<Reducer, Tensors, Buckets, GroupPtr,
                                               std::vector<bool>, int64_t, bool, bool, Names,
                                               int64_t, bool, bool, std::vector<int64_t>>) {
    return make_later(false, false, std::vector<int64_t>{});
  } else {
    return make_later(false, false, std::vector<int64_t>{}, false);
  }
}

}  // namespace lockstep::compat
