# What people are told of. Google bills each condition, and each series that its query finds: so few conditions, and few series.

locals {
  metric_type = merge(
    { for name, m in google_logging_metric.metric : name => "logging.googleapis.com/user/${m.name}" },
    { alarms = "logging.googleapis.com/user/${google_logging_metric.alarms.name}" },
  )

  # Log lines: more than so many within the window.
  lines = {
    # By message, so that the incident says which of them it is.
    alarms = {
      title    = "An orphan, a broken rule or a panic"
      resource = "cloud_run_revision"
      above    = 0
      window   = "300s"
      severity = "CRITICAL"
      by       = ["metric.label.what"]
      see      = "infra/runbooks/leaked-tpu.md for orphans, infra/runbooks/stuck-job.md for the others"
    }
    # Stockouts are daily bread; this many in an hour means that something else is wrong, such as a quota.
    create-failures = {
      title    = "Many creates fail"
      resource = "audited_resource"
      above    = 30
      window   = "3600s"
      severity = "WARNING"
      by       = []
      see      = "infra/runbooks/quota.md"
    }
    refused-callers = {
      title    = "Many calls without a right token"
      resource = "cloud_run_revision"
      above    = 20
      window   = "900s"
      severity = "WARNING"
      by       = []
      see      = "infra/runbooks/key-rotation.md"
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
    condition_threshold {
      filter          = "resource.type = \"${each.value.resource}\" AND metric.type = \"${local.metric_type[each.key]}\""
      comparison      = "COMPARISON_GT"
      threshold_value = each.value.above
      duration        = "0s"
      aggregations {
        alignment_period     = each.value.window
        per_series_aligner   = "ALIGN_DELTA"
        cross_series_reducer = "REDUCE_SUM"
        group_by_fields      = each.value.by
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "See ${each.value.see}."
  }
}

resource "google_monitoring_alert_policy" "tick" {
  count = var.alerts ? 1 : 0

  project               = var.project
  display_name          = "Rekindle: no tick"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = local.channels

  conditions {
    display_name = "no tick for five minutes"
    condition_absent {
      filter   = "resource.type = \"cloud_run_revision\" AND metric.type = \"${local.metric_type["ticks"]}\""
      duration = "300s"
      aggregations {
        alignment_period     = "60s"
        per_series_aligner   = "ALIGN_DELTA"
        cross_series_reducer = "REDUCE_SUM"
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Cloud Scheduler's job rekindle-tick, or the service rekindle-reconcile, does not run. See infra/runbooks/stuck-job.md."
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
    content   = "The dashboard says in which subscription. rekindle-dead-letter-pull: see infra/runbooks/dead-letters.md. Any other: see infra/runbooks/stuck-job.md."
  }
}

resource "google_billing_budget" "month" {
  count = var.billing_account == null ? 0 : 1

  billing_account = var.billing_account
  display_name    = "Rekindle in ${var.project}"

  budget_filter {
    projects = ["projects/${var.project_number}"]
  }

  amount {
    specified_amount {
      units = tostring(ceil(var.max_usd_per_day * 31))
    }
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
