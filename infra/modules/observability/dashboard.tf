# One page that tells at a glance whether it is well.

locals {
  charts = [
    { title = "Ticks a minute", filter = "resource.type=\"cloud_run_revision\" metric.type=\"${local.metric_type["ticks"]}\"", aligner = "ALIGN_DELTA", by = [] },
    { title = "Orphans, broken rules, panics", filter = "resource.type=\"cloud_run_revision\" metric.type=\"${local.metric_type["alarms"]}\"", aligner = "ALIGN_DELTA", by = ["metric.label.what"] },
    { title = "Oldest message that waits, s", filter = "resource.type=\"pubsub_subscription\" metric.type=\"pubsub.googleapis.com/subscription/oldest_unacked_message_age\" resource.labels.subscription_id=monitoring.regex.full_match(\"rekindle-.*\")", aligner = "ALIGN_MAX", by = ["resource.label.subscription_id"] },
    { title = "Dead letters that wait", filter = "resource.type=\"pubsub_subscription\" metric.type=\"pubsub.googleapis.com/subscription/num_undelivered_messages\" resource.labels.subscription_id=\"rekindle-dead-letter-pull\"", aligner = "ALIGN_MAX", by = [] },
    { title = "Creates that failed", filter = "resource.type=\"audited_resource\" metric.type=\"${local.metric_type["create-failures"]}\"", aligner = "ALIGN_DELTA", by = [] },
    { title = "Messages that cannot be used", filter = "resource.type=\"cloud_run_revision\" metric.type=\"${local.metric_type["unusable"]}\"", aligner = "ALIGN_DELTA", by = [] },
    { title = "Calls without a right token", filter = "resource.type=\"cloud_run_revision\" metric.type=\"${local.metric_type["refused-callers"]}\"", aligner = "ALIGN_DELTA", by = [] },
    { title = "Requests by service and answer", filter = "resource.type=\"cloud_run_revision\" metric.type=\"run.googleapis.com/request_count\" resource.labels.service_name=monitoring.regex.full_match(\"rekindle-.*\")", aligner = "ALIGN_RATE", by = ["resource.label.service_name", "metric.label.response_code_class"] },
    { title = "Instances", filter = "resource.type=\"cloud_run_revision\" metric.type=\"run.googleapis.com/container/instance_count\" resource.labels.service_name=monitoring.regex.full_match(\"rekindle-.*\")", aligner = "ALIGN_MAX", by = ["resource.label.service_name"] },
  ]
}

resource "google_monitoring_dashboard" "overview" {
  project = var.project
  dashboard_json = jsonencode({
    displayName = "Rekindle"
    mosaicLayout = {
      columns = 12
      tiles = [for n, chart in local.charts : {
        xPos   = (n % 2) * 6
        yPos   = floor(n / 2) * 4
        width  = 6
        height = 4
        widget = {
          title = chart.title
          xyChart = {
            dataSets = [{
              plotType = "LINE"
              timeSeriesQuery = {
                timeSeriesFilter = {
                  filter = chart.filter
                  aggregation = {
                    alignmentPeriod    = "60s"
                    perSeriesAligner   = chart.aligner
                    crossSeriesReducer = "REDUCE_SUM"
                    groupByFields      = chart.by
                  }
                }
              }
            }]
          }
        }
      }]
    }
  })
}
