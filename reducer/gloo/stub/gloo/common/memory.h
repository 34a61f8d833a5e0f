#pragma once

// Debian's libgloo-dev of 2022 lacks this header, which its own pair.h and context.h include. They
// only hold and pass on what it declares: one pointer of the standard library each.
#include <memory>

namespace gloo {

template <typename T>
class NonOwningPtr final {
  std::shared_ptr<T> ptr_;
};

template <typename T>
class WeakNonOwningPtr final {
  std::weak_ptr<T> ptr_;
};

}  // namespace gloo
