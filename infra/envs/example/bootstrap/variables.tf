variable "project" {
  description = "Project id."
  type        = string
}

variable "region" {
  description = "Region of the registry and of Terraform's state."
  type        = string
}

variable "bucket_locations" {
  description = "Where checkpoints lie: one region or multi-region (US, EU, ASIA), or two regions of one continent."
  type        = list(string)
}
