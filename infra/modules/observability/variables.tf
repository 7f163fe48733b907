variable "project" {
  description = "Project id."
  type        = string
}

variable "project_number" {
  description = "Number of the project, by which budgets name it."
  type        = string
}

variable "emails" {
  description = "Who is told."
  type        = list(string)
}

variable "alerts" {
  description = "Whether to make alert policies, which Google bills by references to metrics from September 2027 on."
  type        = bool
}

variable "tick_absence" {
  description = "Whether an alert policy of its own tells that no tick comes: a second reference to a metric."
  type        = bool
}

variable "billing_account" {
  description = "Billing account of the project; null: no budget is made."
  type        = string
}

variable "max_usd_per_day" {
  description = "Most US dollars a day of all jobs; the budget is a month of it, in the billing account's currency."
  type        = number
}
