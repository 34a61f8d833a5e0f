# OpenSSL::Crypto. The one dependency that an unpacked bundle does not bring: keeping it safe is the system's business.
find_package(OpenSSL COMPONENTS Crypto)
if(NOT TARGET OpenSSL::Crypto)
  message(FATAL_ERROR "OpenSSL's libcrypto or its headers are not there: install libssl-dev (Debian, Ubuntu) or "
                      "openssl-devel (Fedora, SUSE), or pass -DOPENSSL_ROOT_DIR=FOLDER")
endif()
