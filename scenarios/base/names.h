#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Is `tensor` one of `names`, or does one of them stand before a dot in it? "fc1" names fc1.weight
// and fc1.bias, not fc10.weight.
bool is_named_in(const std::vector<std::string>& names, const std::string& tensor);

}  // namespace lockstep
