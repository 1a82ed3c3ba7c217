# The statistics endpoint: formats, HTTP and its event loop. Knows core/stats.h, nothing of nbdkit.
find_package(Boost 1.81 REQUIRED)
find_package(prometheus-cpp REQUIRED COMPONENTS core)

add_library(cswap_stats_server STATIC
  ${CMAKE_CURRENT_LIST_DIR}/boost_json.cc
  ${CMAKE_CURRENT_LIST_DIR}/http_session.cc
  ${CMAKE_CURRENT_LIST_DIR}/stats_endpoint.cc
  ${CMAKE_CURRENT_LIST_DIR}/stats_format.cc
  ${CMAKE_CURRENT_LIST_DIR}/stats_json.cc
  ${CMAKE_CURRENT_LIST_DIR}/stats_listener.cc
  ${CMAKE_CURRENT_LIST_DIR}/stats_loop.cc
  ${CMAKE_CURRENT_LIST_DIR}/stats_server.cc
  ${CMAKE_CURRENT_LIST_DIR}/utf8.cc)
# One thread runs the event loop, so its handlers need no fences; gcc refuses them under its thread
# sanitizer, which does not understand them.
target_compile_definitions(cswap_stats_server PRIVATE BOOST_ASIO_NO_DEPRECATED
                           BOOST_ASIO_DISABLE_FENCED_BLOCK)
target_link_libraries(cswap_stats_server
  PUBLIC cswap_core Threads::Threads
  PRIVATE Boost::headers prometheus-cpp::core)
