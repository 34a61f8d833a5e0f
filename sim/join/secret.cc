#include "sim/join/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>

#include "scenarios/base/error.h"

namespace lockstep {

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  size_t done = 0;
  while (done < count) {
    const ssize_t n = ::getrandom(bytes.data() + done, count - done, 0);
    LOCKSTEP_CHECK(n > 0 || errno == EINTR, "getrandom gives no bytes");
    if (n > 0) done += static_cast<size_t>(n);
  }
  return bytes;
}

std::string to_hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto value = static_cast<unsigned char>(c);
    text += kDigits[value >> 4];
    text += kDigits[value & 15];
  }
  return text;
}

std::string hmac_sha256(const std::string& key, const std::string& text) {
  std::string proof(kProofBytes, '\0');
  unsigned int length = 0;
  const auto* done = ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
                            reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                            reinterpret_cast<unsigned char*>(proof.data()), &length);
  LOCKSTEP_CHECK(done != nullptr && length == kProofBytes, "libcrypto computes no HMAC-SHA256");
  return proof;
}

bool equal_bytes(const std::string& a, const std::string& b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

bool has_key(const Credentials& credentials, const std::string& notice_key) {
  return !credentials.job_key.empty() || !notice_key.empty();
}

std::string rendezvous_secret(const Credentials& credentials, const std::string& notice_key) {
  const std::string given = hmac_sha256("lockstep rendezvous: job", credentials.job_key);
  const std::string found = hmac_sha256(given, notice_key);
  return has_key(credentials, notice_key) ? found : hmac_sha256(found, credentials.identity);
}

ConnectionKeys connection_keys(const std::string& secret, const std::string& coordinator_nonce,
                               const std::string& member_nonce) {
  const auto key = [&](const char* purpose) {
    return hmac_sha256(secret, coordinator_nonce + member_nonce + purpose);
  };
  return {key("member proves"), key("coordinator proves"), key("to coordinator"), key("to member")};
}

std::string Seal::next(const std::string& message) {
  std::string counted;
  for (int byte = 0; byte < 8; ++byte) counted += static_cast<char>(count_ >> (8 * byte));
  ++count_;
  return hmac_sha256(key_, counted + message);
}

}  // namespace lockstep
