// A client in types that are made from the OpenAPI document. It is compiled, not run: a request or an answer that the
// document describes otherwise is an error.

import createClient from "openapi-fetch";

import type { components, paths } from "./muster.js";

type State = components["schemas"]["Job"]["state"];

const client = createClient<paths>({
  baseUrl: "http://127.0.0.1:4780",
  headers: { Authorization: "Bearer token" },
});

export async function main(): Promise<number> {
  const accepted = await client.POST("/v1/jobs", {
    params: { header: { "Idempotency-Key": "one" } },
    body: { command: ["true"], resources: { cpus: 1, gpus: 1, memory: "8GiB" }, priority: 60, requeue: true },
  });
  if (accepted.error) {
    return accepted.error.status;
  }
  const id: string = accepted.data.id;
  const ended: State[] = ["SUCCEEDED", "FAILED"];
  const job = await client.GET("/v1/jobs/{id}", { params: { path: { id } } });
  const list = await client.GET("/v1/jobs", { params: { query: { state: ["PD", "R"], limit: 10 } } });
  const names: (string | undefined)[] | undefined = list.data?.items.map((j) => j.tasks[0]?.node);
  await client.POST("/v1/jobs/{id}/cancel", { params: { path: { id } }, body: { reason: names?.join(" ") } });
  await client.POST("/v1/nodes/{id}/drain", { params: { path: { id: "n1" } }, body: { deadline: 3600 } });
  // @ts-expect-error: there is no such state
  const wrong: State = "DONE";
  return job.data && ended.includes(job.data.state) ? (job.data.exit_status ?? 125) : wrong.length;
}
