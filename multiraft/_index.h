/* What a segment adds to the index, gathered entry by entry without the interpreter's lock.
 *
 * Contract.  mr_indexer_add takes the entries of one segment in lane order.  It knows the plain case:
 * each entry is the next one of its group's log, or its group's hard state.  Anything else is
 * MR_SPECIAL, after which the indexer is of no use; MR_NO_MEMORY likewise.
 *
 * Theory.  Columns of 64-bit numbers, as storage/index.py has them; groups and partitions are found
 * through tables with open addressing that hold slot + 1, 0 = free, at most half full.
 */
#ifndef MULTIRAFT_INDEX_H
#define MULTIRAFT_INDEX_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MR_PLAIN = 0, MR_SPECIAL = 1, MR_NO_MEMORY = -1 };

typedef struct {
    uint64_t *at;
    size_t count, room;
} mr_column;

typedef struct {
    uint64_t partition;
    size_t group; /* slot */
    int64_t end_offset;
    mr_column bases, indexes, latest, counts;
} mr_partition;

typedef struct {
    uint32_t group, incarnation;
    uint64_t first_index, last_term;
    mr_column positions, ends, run_starts, run_terms;
    int has_hard_state;
    uint64_t term;
    uint32_t vote;
} mr_group;

typedef struct {
    uint32_t *slots;
    size_t size; /* a power of two, or 0 */
} mr_table;

typedef struct {
    mr_group *groups;
    mr_partition *partitions;
    size_t group_count, group_room, partition_count, partition_room;
    mr_table group_table, partition_table;
    int has_entries;
    uint64_t first_durable, highest_durable;
} mr_indexer;

/* One entry as its header and, of a batch, its header say. */
typedef struct {
    int is_indexed; /* else it is a hard state */
    int is_batch;
    uint32_t group, incarnation;
    uint64_t term, index, partition, durable, position, size;
    int64_t base_offset, max_timestamp_ms;
    int32_t count;
    uint32_t vote;
} mr_indexed;

static inline int mr_column_add(mr_column *column, uint64_t number)
{
    if (column->count == column->room) {
        size_t room = column->room ? 2 * column->room : 16;
        uint64_t *grown = realloc(column->at, room * sizeof *grown);
        if (!grown)
            return MR_NO_MEMORY;
        column->at = grown;
        column->room = room;
    }
    column->at[column->count++] = number;
    return MR_PLAIN;
}

static inline size_t mr_spread(uint64_t high, uint64_t low)
{
    uint64_t mixed = (low ^ (high * 0x9E3779B97F4A7C15u)) * 0xD6E8FEB86659FD93u;
    return (size_t)(mixed ^ (mixed >> 32));
}

static inline size_t mr_group_spread(const mr_indexer *indexer, size_t slot)
{
    return mr_spread(0, indexer->groups[slot].group);
}

static inline size_t mr_partition_spread(const mr_indexer *indexer, size_t slot)
{
    return mr_spread(indexer->partitions[slot].group, indexer->partitions[slot].partition);
}

static int mr_table_grow(mr_table *table, const mr_indexer *indexer, size_t count,
                         size_t (*spread)(const mr_indexer *, size_t))
{
    size_t size = table->size ? 2 * table->size : 64;
    uint32_t *slots = calloc(size, sizeof *slots);
    if (!slots)
        return MR_NO_MEMORY;
    for (size_t slot = 0; slot < count; slot++) {
        size_t at = spread(indexer, slot) & (size - 1);
        while (slots[at])
            at = (at + 1) & (size - 1);
        slots[at] = (uint32_t)slot + 1;
    }
    free(table->slots);
    table->slots = slots;
    table->size = size;
    return MR_PLAIN;
}

static int mr_room_for(void **items, size_t count, size_t *room, size_t item_bytes)
{
    if (count < *room)
        return MR_PLAIN;
    size_t larger = *room ? 2 * *room : 16;
    void *grown = realloc(*items, larger * item_bytes);
    if (!grown)
        return MR_NO_MEMORY;
    *items = grown;
    *room = larger;
    return MR_PLAIN;
}

/* The group's slot, made when it is new; MR_NO_MEMORY. */
static int64_t mr_group_slot(mr_indexer *indexer, const mr_indexed *entry)
{
    mr_table *table = &indexer->group_table;
    size_t at = 0, slot = indexer->group_count;
    if (2 * slot >= table->size && mr_table_grow(table, indexer, slot, mr_group_spread))
        return MR_NO_MEMORY;
    for (at = mr_spread(0, entry->group) & (table->size - 1); table->slots[at];
         at = (at + 1) & (table->size - 1))
        if (indexer->groups[table->slots[at] - 1].group == entry->group)
            return table->slots[at] - 1;
    if (mr_room_for((void **)&indexer->groups, slot, &indexer->group_room, sizeof(mr_group)))
        return MR_NO_MEMORY;
    memset(&indexer->groups[slot], 0, sizeof(mr_group));
    indexer->groups[slot].group = entry->group;
    indexer->groups[slot].incarnation = entry->incarnation;
    indexer->group_count++;
    table->slots[at] = (uint32_t)slot + 1;
    return (int64_t)slot;
}

/* As mr_group_slot, of a partition in a group. */
static int64_t mr_partition_slot(mr_indexer *indexer, size_t group, uint64_t partition)
{
    mr_table *table = &indexer->partition_table;
    size_t at = 0, slot = indexer->partition_count;
    if (2 * slot >= table->size && mr_table_grow(table, indexer, slot, mr_partition_spread))
        return MR_NO_MEMORY;
    for (at = mr_spread(group, partition) & (table->size - 1); table->slots[at];
         at = (at + 1) & (table->size - 1)) {
        const mr_partition *known = &indexer->partitions[table->slots[at] - 1];
        if (known->partition == partition && known->group == group)
            return table->slots[at] - 1;
    }
    if (mr_room_for((void **)&indexer->partitions, slot, &indexer->partition_room,
                    sizeof(mr_partition)))
        return MR_NO_MEMORY;
    memset(&indexer->partitions[slot], 0, sizeof(mr_partition));
    indexer->partitions[slot].partition = partition;
    indexer->partitions[slot].group = group;
    indexer->partition_count++;
    table->slots[at] = (uint32_t)slot + 1;
    return (int64_t)slot;
}

/* As PartitionIndex.append. */
static int mr_add_batch(mr_indexer *indexer, size_t group, const mr_indexed *entry)
{
    int64_t slot = mr_partition_slot(indexer, group, entry->partition);
    if (slot < 0)
        return MR_NO_MEMORY;
    mr_partition *partition = &indexer->partitions[slot];
    int64_t latest = entry->max_timestamp_ms;
    size_t count = partition->bases.count;
    if (count && (int64_t)partition->latest.at[count - 1] > latest)
        latest = (int64_t)partition->latest.at[count - 1];
    if (__builtin_add_overflow(entry->base_offset, (int64_t)entry->count,
                               &partition->end_offset))
        return MR_SPECIAL;
    return mr_column_add(&partition->bases, (uint64_t)entry->base_offset)
        || mr_column_add(&partition->indexes, entry->index)
        || mr_column_add(&partition->latest, (uint64_t)latest)
        || mr_column_add(&partition->counts, (uint64_t)entry->count) ? MR_NO_MEMORY : MR_PLAIN;
}

/* As GroupIndex.append_next, or the first of its group. */
static int mr_add_next(mr_group *group, const mr_indexed *entry)
{
    size_t count = group->positions.count;
    if (!count)
        group->first_index = entry->index;
    else if (entry->index < group->first_index || entry->index - group->first_index != count
             || entry->term < group->last_term)
        return MR_SPECIAL;
    if ((!count || entry->term != group->last_term)
        && (mr_column_add(&group->run_starts, entry->index)
            || mr_column_add(&group->run_terms, entry->term)))
        return MR_NO_MEMORY;
    group->last_term = entry->term;
    return mr_column_add(&group->ends, (count ? group->ends.at[count - 1] : 0) + entry->size)
        || mr_column_add(&group->positions, entry->position) ? MR_NO_MEMORY : MR_PLAIN;
}

static inline int mr_indexer_add(mr_indexer *indexer, const mr_indexed *entry)
{
    int64_t slot = mr_group_slot(indexer, entry);
    if (slot < 0)
        return MR_NO_MEMORY;
    mr_group *group = &indexer->groups[slot];
    if (group->incarnation != entry->incarnation)
        return MR_SPECIAL;
    if (!indexer->has_entries)
        indexer->first_durable = entry->durable;
    indexer->has_entries = 1;
    if (entry->durable > indexer->highest_durable)
        indexer->highest_durable = entry->durable;
    if (!entry->is_indexed) {
        group->has_hard_state = 1;
        group->term = entry->term;
        group->vote = entry->vote;
        return MR_PLAIN;
    }
    int added = mr_add_next(group, entry);
    if (added || !entry->is_batch)
        return added;
    return mr_add_batch(indexer, (size_t)slot, entry);
}

static inline mr_indexer *mr_indexer_new(void)
{
    return calloc(1, sizeof(mr_indexer));
}

static inline void mr_indexer_free(mr_indexer *indexer)
{
    if (!indexer)
        return;
    for (size_t slot = 0; slot < indexer->group_count; slot++) {
        mr_group *group = &indexer->groups[slot];
        free(group->positions.at);
        free(group->ends.at);
        free(group->run_starts.at);
        free(group->run_terms.at);
    }
    for (size_t slot = 0; slot < indexer->partition_count; slot++) {
        mr_partition *partition = &indexer->partitions[slot];
        free(partition->bases.at);
        free(partition->indexes.at);
        free(partition->latest.at);
        free(partition->counts.at);
    }
    free(indexer->groups);
    free(indexer->partitions);
    free(indexer->group_table.slots);
    free(indexer->partition_table.slots);
    free(indexer);
}

#endif
