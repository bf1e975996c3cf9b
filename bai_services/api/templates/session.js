(function () {
  "use strict";
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const byId = (id) => document.getElementById(id);
  const texts = read("bai-texts");
  const api = read("bai-api");
  let session = read("bai-session-data");
  const say = (key, places) =>
    (texts[key] || key).replace(/\{(\w+)\}/g, (whole, name) => (places && name in places ? places[name] : whole));
  const path = api + "/sessions/" + encodeURIComponent(session.id);
  const POLL_MILLIS = 5000;
  const USES_MILLIS = 30000;
  const STEPS = ["PENDING", "SCHEDULED", "PREPARING", "PREPARED", "RUNNING"];
  const ENDED = ["TERMINATED", "CANCELLED", "ERROR"];
  const KINDS = { RUNNING: "success", ERROR: "danger", TERMINATED: "secondary", CANCELLED: "secondary", TERMINATING: "warning" };
  let lastStatus = "";
  let hasLog = false;

  function element(tag, text, className) {
    const made = document.createElement(tag);
    if (text !== undefined) { made.textContent = text; }
    if (className) { made.className = className; }
    return made;
  }
  function time(text) {
    return text ? new Date(text).toLocaleString(document.querySelector(".bai-session").lang) : "";
  }
  function slots(amounts) {
    return Object.entries(amounts || {}).map(([slot, amount]) => slot + " " + amount).join(", ");
  }
  const isEnded = () => ENDED.includes(session.status);
  const isBeforeRun = () => ["PENDING", "SCHEDULED", "PREPARING"].includes(session.status);

  function showHead() {
    byId("bai-name").textContent = session.name;
    const badge = byId("bai-status");
    badge.textContent = say(session.status);
    badge.className = "badge align-middle text-bg-" + (KINDS[session.status] || "info");
    // Waiting and ended sessions say it further down.
    byId("bai-info").textContent = isEnded() || session.status === "PENDING" ? "" : session.status_info || "";
    const open = byId("bai-open");
    open.hidden = session.status !== "RUNNING";
    open.href = session.url;
    const stop = byId("bai-stop");
    stop.hidden = isEnded() || session.status === "TERMINATING";
    stop.textContent = say(isBeforeRun() ? "cancel" : "stop");
    if (lastStatus !== session.status) {
      byId("bai-said").textContent = say("status-now", { status: say(session.status) });
      lastStatus = session.status;
    }
  }

  function showSteps() {
    // Times say how far an ended session came; its status only says that it ended.
    let reached = STEPS.indexOf(session.status);
    if (reached < 0) { reached = session.started_at ? 4 : session.scheduled_at ? 1 : 0; }
    const items = STEPS.map((status, at) => {
      const item = element("li", say(status));
      const isLast = session.status === "RUNNING" || reached === 4;
      if (at < reached || (at === reached && (isLast || STEPS.indexOf(session.status) < 0))) {
        item.className = "bai-done";
        item.append(element("span", " (" + say("step-done") + ")", "visually-hidden"));
      } else if (at === reached) {
        item.className = "bai-now";
        item.setAttribute("aria-current", "step");
      }
      return item;
    });
    if (STEPS.indexOf(session.status) < 0) {
      const end = element("li", say(session.status), session.status === "ERROR" ? "bai-bad" : "bai-now");
      end.setAttribute("aria-current", "step");
      items.push(end);
    }
    byId("bai-steps").replaceChildren(...items);
  }

  function showWaiting() {
    const isWaiting = session.status === "PENDING";
    byId("bai-waiting").hidden = !isWaiting;
    if (!isWaiting) { return; }
    byId("bai-position").textContent = session.queue_position ? say("queue-position", { position: session.queue_position }) : "";
    byId("bai-checks").replaceChildren(...(session.reasons || []).map((reason) => {
      const item = element("li", undefined, reason.passed ? "bai-ok" : "bai-not");
      const sign = element("span", reason.passed ? "✓" : "✗", "bai-sign");
      sign.setAttribute("role", "img");
      sign.setAttribute("aria-label", say(reason.passed ? "passed" : "failed"));
      item.append(sign, element("span", reason.message || reason.check));
      return item;
    }));
  }

  function showProgress() {
    const isPreparing = session.status === "PREPARING" || session.status === "PREPARED" || session.status === "SCHEDULED";
    byId("bai-progress").hidden = !isPreparing;
    if (!isPreparing) { return; }
    const progress = session.progress || {};
    const percent = session.status === "PREPARED" ? 100 : Math.max(0, Math.min(100, Number(progress.percent) || 0));
    byId("bai-progress-text").textContent = progress.message || say(session.status);
    const bar = byId("bai-bar");
    bar.setAttribute("aria-valuenow", String(Math.round(percent)));
    bar.firstElementChild.style.width = percent + "%";
    bar.firstElementChild.textContent = percent ? Math.round(percent) + " %" : "";
  }

  function facts(list, pairs) {
    const items = [];
    pairs.forEach(([name, value]) => {
      if (value !== undefined && value !== null && value !== "") {
        items.push(element("dt", say(name)), element("dd", String(value)));
      }
    });
    list.replaceChildren(...items);
  }
  function showDetails() {
    facts(byId("bai-facts"), [
      ["owner", session.owner], ["project", session.project], ["resource-group", session.resource_group],
      ["image", session.image], ["requested", slots(session.requested)], ["shared-memory", session.shared_memory],
      ["created-at", time(session.created_at)], ["started-at", time(session.started_at)], ["terminated-at", time(session.terminated_at)],
    ]);
  }

  function showIdleness() {
    const isLimited = session.status === "RUNNING" && Boolean(session.idle_ends_at);
    byId("bai-alive").hidden = !isLimited;
    byId("bai-idle").hidden = !isLimited;
    if (!isLimited) { return; }
    const left = Math.max(0, Math.ceil((Date.parse(session.idle_ends_at) - Date.now()) / 1000));
    const parts = [Math.floor(left / 3600), Math.floor(left / 60) % 60, left % 60];
    const clock = parts.map((part) => String(part).padStart(2, "0")).join(":");
    byId("bai-idle").textContent = say("idle-ends-in", { time: clock });
  }

  function showRows(id, rows) {
    byId(id).hidden = rows.length === 0;
    byId(id).querySelector("tbody").replaceChildren(...rows.map((cells) => {
      const row = element("tr");
      cells.forEach((cell) => {
        const made = element("td");
        made.append(...[].concat(cell));
        row.append(made);
      });
      return row;
    }));
  }
  function showTables() {
    showRows("bai-allocations", (session.allocations || []).map((each) => {
      const device = [each.device || ""];
      if (each.is_simulated) { device.push(" ", element("span", say("simulated"), "badge text-bg-warning")); }
      const held = (session.devices || []).find((one) => one.id === each.device && one.enforcement);
      if (held && each.slot.endsWith(".shares")) { device.push(element("div", say("held-" + held.enforcement), "form-text mt-0")); }
      return [each.slot, each.amount, device, each.agent];
    }));
    showRows("bai-folders", (session.mounts || []).map((each) => [[each.vfolder, each.subpath].filter(Boolean).join("/"), each.path, say(each.permission)]));
    byId("bai-notices").replaceChildren(...(session.notices || []).map((notice) => element("div", notice, "alert alert-info py-2")));
  }

  async function showEnd() {
    byId("bai-end").hidden = !isEnded();
    if (!isEnded()) { return; }
    facts(byId("bai-end-facts"), [
      ["reason", session.status_info], ["exit-code", session.exit_code],
      ["result", session.result === "undefined" ? "" : session.result],
    ]);
    if (hasLog) { return; }
    hasLog = true;
    try {
      const answer = await fetch(path + "/logs", { headers: { Accept: "application/json" } });
      const content = answer.ok ? await answer.json() : {};
      const lines = String(content.log || content.text || "").trimEnd().split("\n").slice(-200).join("\n");
      byId("bai-log").textContent = lines || say("log-empty");
      byId("bai-log").scrollTop = byId("bai-log").scrollHeight;
    } catch (error) {
      hasLog = false;
    }
  }

  function show() {
    showHead();
    showSteps();
    showWaiting();
    showProgress();
    showDetails();
    showIdleness();
    showTables();
    showEnd();
  }

  function problem(text) {
    byId("bai-problem").textContent = text;
    byId("bai-problem").hidden = !text;
  }
  let isReading = false;
  let isStale = false;
  async function refresh() {
    if (isReading) { isStale = true; return; }
    isReading = true;
    try {
      const answer = await fetch(path, { headers: { Accept: "application/json" } });
      if (answer.status === 401) { window.location.reload(); return; }
      if (!answer.ok) { throw new Error(String(answer.status)); }
      session = await answer.json();
      problem("");
      show();
    } catch (error) {
      problem(say("offline"));
    } finally {
      isReading = false;
    }
    if (isStale) { isStale = false; refresh(); }
  }

  // Events say that something changed; what it is now is read. Without them: looked at regularly.
  let poll = null;
  function startPolling() { if (poll === null) { poll = window.setInterval(() => { if (!isEnded()) { refresh(); } }, POLL_MILLIS); } }
  function stopPolling() { if (poll !== null) { window.clearInterval(poll); poll = null; } }
  function listen() {
    if (!window.EventSource) { startPolling(); return; }
    const events = new EventSource(api + "/events?session=" + encodeURIComponent(session.id));
    const changed = () => { refresh(); if (isEnded()) { events.close(); } };
    events.onopen = () => { stopPolling(); refresh(); };
    events.onmessage = changed;
    ["session", "status", "reasons", "progress", "name"].forEach((kind) => events.addEventListener(kind, changed));
    events.onerror = () => {
      startPolling();
      if (events.readyState === EventSource.CLOSED && !isEnded()) { window.setTimeout(listen, POLL_MILLIS); }
    };
  }

  byId("bai-stop").addEventListener("click", () => {
    const isCancel = isBeforeRun();
    byId("bai-question").textContent = say(isCancel ? "cancel-question" : "stop-question");
    byId("bai-sure").textContent = say(isCancel ? "yes-cancel" : "yes-stop");
    byId("bai-dialog").showModal();
  });
  async function ask(button, method, place, body) {
    button.disabled = true;
    try {
      const answer = await fetch(place, {
        method,
        headers: { Accept: "application/json", "Content-Type": "application/json", "X-XSRFToken": window.jhdata.xsrf_token },
        body,
      });
      if (!answer.ok) {
        const content = await answer.json().catch(() => ({}));
        problem(say("failed-request", { message: content.message || answer.status }));
        return;
      }
      await refresh();
    } catch (error) {
      problem(say("offline"));
    } finally {
      button.disabled = false;
    }
  }
  byId("bai-alive").addEventListener("click", () => ask(byId("bai-alive"), "POST", path + "/activity", "{}"));
  byId("bai-keep").addEventListener("click", () => byId("bai-dialog").close());
  byId("bai-sure").addEventListener("click", () => {
    byId("bai-dialog").close();
    ask(byId("bai-stop"), "DELETE", path);
  });

  document.documentElement.lang = document.querySelector(".bai-session").lang;
  show();
  if (!isEnded()) { listen(); }
  window.setInterval(showIdleness, 1000);
  // Uses are no events.
  window.setInterval(() => { if (session.idle_ends_at) { refresh(); } }, USES_MILLIS);
})();
