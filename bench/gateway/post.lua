-- For wrk: the request that gateway_bench.py sends too.
wrk.method = "POST"
wrk.path = "/v1/chat/completions"
wrk.body = os.getenv("BENCH_BODY")
wrk.headers["authorization"] = "Bearer " .. os.getenv("BENCH_KEY")
wrk.headers["content-type"] = "application/json"
