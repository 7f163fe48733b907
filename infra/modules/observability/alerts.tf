# What people are told of. From September 2027 on Google bills each reference of a condition to a metric; conditions on log lines refer to none,
# and can be made before anything was ever counted. So lines wherever a line tells, and one metric for what no line tells.

locals {
  metric_type = merge(
    { for name, m in google_logging_metric.metric : name => "logging.googleapis.com/user/${m.name}" },
    { alarms = "logging.googleapis.com/user/${google_logging_metric.alarms.name}" },
  )

  # A line that comes is told of, at most so often.
  lines = {
    # By message, so that the incident says which of them it is.
    alarms = {
      title    = "An orphan, a broken rule or a panic"
      filter   = local.alarms
      labels   = { what = local.what }
      every    = "300s"
      severity = "CRITICAL"
      see = join(" ", [
        "infra/runbooks/leaked-tpu.md for a TPU (an orphan, one that was made otherwise, a delete that is not allowed),",
        "for the list of TPUs, and for a new installation;",
        "infra/runbooks/stuck-job.md, \"A broken rule, a panic, a job left out\", for the others.",
      ])
    }
    # Cloud Scheduler tells of each run that failed, and the audit log of who took the tick away or gave it another schedule, target or account.
    # What runs without a tick, agents' calls and passes, says so; and so does the next tick.
    no-tick = {
      title = "No tick"
      filter = join(" OR ", [
        "(resource.type=\"cloud_scheduler_job\" AND resource.labels.job_id=\"rekindle-tick\" AND severity>=ERROR)",
        join(" AND ", [
          "(log_id(\"cloudaudit.googleapis.com/activity\")",
          "protoPayload.serviceName=\"cloudscheduler.googleapis.com\"",
          "protoPayload.methodName=~\"CloudScheduler\\.(PauseJob|DeleteJob|UpdateJob)$\"",
          "protoPayload.resourceName=~\"/jobs/rekindle-tick$\")",
        ]),
        "(${local.services} AND jsonPayload.message=\"no tick has run for five minutes\")",
      ])
      labels   = {}
      every    = "3600s"
      severity = "CRITICAL"
      see      = "infra/runbooks/stuck-job.md, \"All jobs\": does the tick run?"
    }
    # Stockouts are daily bread; any other refusal, such as a quota, stays until somebody does something.
    create-failures = {
      title = "Creates are refused"
      filter = join(" AND ", [
        local.create_failures,
        "protoPayload.status.message!~\"(no more capacity|[Ii]nsufficient capacity|internal error|state PREEMPTED)\"",
      ])
      labels   = {}
      every    = "3600s"
      severity = "WARNING"
      see      = "infra/runbooks/quota.md, \"Which one\"."
    }
    # Inside Google Cloud nobody calls by mistake: a push, a task or the tick is refused, and comes in vain each time.
    refused-callers = {
      title    = "Calls without a right token"
      filter   = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=~\"^rekindle-(events|reconcile)$\" AND ${local.refused}"
      labels   = {}
      every    = "3600s"
      severity = "WARNING"
      see      = "infra/runbooks/key-rotation.md, \"Calls are refused\"."
    }
  }
}

resource "google_monitoring_notification_channel" "email" {
  for_each = toset(var.emails)

  project      = var.project
  display_name = "Rekindle: ${each.value}"
  type         = "email"
  labels       = { email_address = each.value }
}

locals {
  channels = [for c in google_monitoring_notification_channel.email : c.name]
}

resource "google_monitoring_alert_policy" "lines" {
  for_each = { for name, line in local.lines : name => line if var.alerts }

  project               = var.project
  display_name          = "Rekindle: ${each.value.title}"
  combiner              = "OR"
  severity              = each.value.severity
  notification_channels = local.channels

  conditions {
    display_name = each.value.title
    condition_matched_log {
      filter           = each.value.filter
      label_extractors = each.value.labels
    }
  }

  alert_strategy {
    auto_close = "86400s"
    notification_rate_limit {
      period = each.value.every
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "See ${each.value.see}"
  }
}

resource "google_monitoring_alert_policy" "oldest_message" {
  count = var.alerts ? 1 : 0

  project               = var.project
  display_name          = "Rekindle: messages wait, or dead letters do"
  combiner              = "OR"
  severity              = "ERROR"
  notification_channels = local.channels

  conditions {
    display_name = "a message has waited for ten minutes, before a service or among the dead letters"
    condition_threshold {
      filter = join(" AND ", [
        "resource.type = \"pubsub_subscription\"",
        "metric.type = \"pubsub.googleapis.com/subscription/oldest_unacked_message_age\"",
        "resource.labels.subscription_id = monitoring.regex.full_match(\"rekindle-.*-(push|pull)\")",
      ])
      comparison      = "COMPARISON_GT"
      threshold_value = 600
      duration        = "120s"
      aggregations {
        alignment_period     = "60s"
        per_series_aligner   = "ALIGN_MAX"
        cross_series_reducer = "REDUCE_MAX"
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content = join(" ", [
      "The dashboard \"Rekindle\" says in which subscription: https://console.cloud.google.com/monitoring/dashboards?project=${var.project}.",
      "rekindle-dead-letter-pull: see infra/runbooks/dead-letters.md. Any other: see infra/runbooks/stuck-job.md, \"All jobs\".",
      "While one message waits, this stays open, and no second mail comes of another subscription: take dead letters out soon.",
    ])
  }
}

# While no job lives the tick alone calls `reconcile`, so that no line tells of a tick that ceased. A metric of Cloud Run's own: one of ours
# would have to be known before the policy is made.
resource "google_monitoring_alert_policy" "tick_absence" {
  count = var.alerts && var.tick_absence ? 1 : 0

  project               = var.project
  display_name          = "Rekindle: Nothing calls reconcile"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = local.channels

  conditions {
    display_name = "no tick, and nothing else, has called reconcile for ten minutes"
    condition_absent {
      filter = join(" AND ", [
        "resource.type = \"cloud_run_revision\"",
        "metric.type = \"run.googleapis.com/request_count\"",
        "resource.labels.service_name = \"rekindle-reconcile\"",
      ])
      duration = "600s"
      aggregations {
        alignment_period     = "60s"
        per_series_aligner   = "ALIGN_DELTA"
        cross_series_reducer = "REDUCE_SUM"
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "See infra/runbooks/stuck-job.md, \"All jobs\": does the tick run?"
  }
}

resource "google_billing_budget" "month" {
  count = var.billing_account == null ? 0 : 1

  billing_account = var.billing_account
  # 60 characters at most; it is all that the mail says.
  display_name = "Rekindle in ${var.project}: runbooks/quota"

  budget_filter {
    projects = ["projects/${var.project_number}"]
  }

  amount {
    specified_amount {
      units = tostring(ceil(var.max_usd_per_day * 31))
    }
  }

  # Beside whom the billing account tells; Google takes five channels.
  all_updates_rule {
    monitoring_notification_channels = [for n, channel in local.channels : channel if n < 5]
  }

  threshold_rules {
    threshold_percent = 0.5
  }
  threshold_rules {
    threshold_percent = 0.9
  }
  threshold_rules {
    threshold_percent = 1
    spend_basis       = "FORECASTED_SPEND"
  }
}
