# For tests that drive a real nbdkit: processes, servers, connections.
include_guard(DIRECTORY)
find_package(doctest REQUIRED)
pkg_check_modules(LIBNBD REQUIRED IMPORTED_TARGET libnbd)

# nbdkit is not instrumented, so the runtime of the sanitizer must be loaded before it.
set(runtime "")
if(CSWAP_SANITIZE MATCHES "address")
  set(runtime_names libasan.so libubsan.so)
elseif(CSWAP_SANITIZE MATCHES "thread")
  set(runtime_names libtsan.so)
endif()
foreach(name ${runtime_names})
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${name}
                  OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE)
  list(APPEND runtime ${path})
endforeach()
list(JOIN runtime ":" runtime)

if(NOT TARGET cswap_nbd_support)
  if(CSWAP_SANITIZE)
    add_library(keep_locales MODULE ${CMAKE_CURRENT_LIST_DIR}/keep_locales.cc)
    string(APPEND runtime ":$<TARGET_FILE:keep_locales>")
  endif()
  add_library(cswap_nbd_support STATIC
    ${CMAKE_CURRENT_LIST_DIR}/nbd_client.cc
    ${CMAKE_CURRENT_LIST_DIR}/nbd_server.cc
    ${CMAKE_CURRENT_LIST_DIR}/process.cc)
  target_compile_definitions(cswap_nbd_support
    PUBLIC CSWAP_SANITIZE_NAME="${CSWAP_SANITIZE}"
    PRIVATE CSWAP_PLUGIN_PATH="$<TARGET_FILE:nbdkit-cswap-plugin>"
            CSWAP_SANITIZER_RUNTIME="${runtime}"
            CSWAP_SUPPRESSIONS="${CMAKE_CURRENT_LIST_DIR}/suppressions")
  target_link_libraries(cswap_nbd_support PUBLIC cswap_test_support PkgConfig::LIBNBD
                        Threads::Threads)
  add_dependencies(cswap_nbd_support nbdkit-cswap-plugin)
  if(CSWAP_SANITIZE)
    add_dependencies(cswap_nbd_support keep_locales)
  endif()
endif()
