/* Rows of index files in blocks: packed from what an mr_indexer gathered, and unpacked into columns.
 *
 * Contract.  docs/storage-format.md has the bytes.  mr_rows_sort finds the sizes of the buffers that
 * mr_rows_pack fills; neither needs the interpreter's lock.
 * mr_unpack_* accept any bytes: what is not exactly the rows that a summary says is MR_CONTRADICTS.
 */
#ifndef MULTIRAFT_INDEX_ROWS_H
#define MULTIRAFT_INDEX_ROWS_H

#include "_bytes.h"
#include "_crc32c.h"
#include "_index.h"

enum {
    MR_BLOCK_BYTES = 4096,
    MR_BLOCK_HEAD_BYTES = 8, /* CRC, kind, rows */
    MR_ENTRY_BLOCKS = 1,     /* kinds */
    MR_BATCH_BLOCKS = 2,
    MR_ENTRY_ROW_BYTES = 8,
    MR_BATCH_ROW_BYTES = 36,
    MR_PART_BYTES = 24,      /* row of a summary */
    MR_PARTITION_BYTES = 20, /* partition of a summary */
    MR_SLOT_BITS = 10,
    MR_BLOCK_AT = 2 * MR_SLOT_BITS,
    MR_BLOCK_BITS = 24,
    MR_FILE_AT = MR_BLOCK_AT + MR_BLOCK_BITS,
    MR_FILES_MAX = 1 << 20,
};

enum { MR_TOO_LARGE = -2, MR_CONTRADICTS = -3 };

typedef struct {
    size_t *groups, *partitions; /* slots in ascending order */
    size_t entries, batches;     /* rows */
    size_t entry_parts, batch_parts;
} mr_row_order;

static inline size_t mr_row_bytes(int kind)
{
    return kind == MR_ENTRY_BLOCKS ? MR_ENTRY_ROW_BYTES : MR_BATCH_ROW_BYTES;
}

static inline size_t mr_rows_per_block(int kind)
{
    return (MR_BLOCK_BYTES - MR_BLOCK_HEAD_BYTES) / mr_row_bytes(kind);
}

static inline size_t mr_blocks_of(int kind, size_t rows)
{
    return rows / mr_rows_per_block(kind) + (rows % mr_rows_per_block(kind) != 0);
}

/* Blocks in which a key with so many rows, the first of them row `at` of its kind, has a part. */
static inline size_t mr_parts_of(int kind, size_t at, size_t rows)
{
    return rows ? mr_blocks_of(kind, at % mr_rows_per_block(kind) + rows) : 0;
}

/* ---- packing --------------------------------------------------------------------------------- */

static int mr_group_order(const void *left, const void *right, void *indexer)
{
    const mr_group *groups = ((const mr_indexer *)indexer)->groups;
    uint32_t a = groups[*(const size_t *)left].group, b = groups[*(const size_t *)right].group;
    return a < b ? -1 : a > b;
}

static int mr_partition_order(const void *left, const void *right, void *indexer)
{
    const mr_indexer *all = indexer;
    const mr_partition *a = &all->partitions[*(const size_t *)left];
    const mr_partition *b = &all->partitions[*(const size_t *)right];
    if (a->group != b->group)
        return all->groups[a->group].group < all->groups[b->group].group ? -1 : 1;
    return a->partition < b->partition ? -1 : a->partition > b->partition;
}

static inline void mr_rows_free(mr_row_order *order)
{
    free(order->groups);
    free(order->partitions);
}

/* Find the order and the sizes of all rows; MR_NO_MEMORY, MR_TOO_LARGE. */
static inline int mr_rows_sort(const mr_indexer *indexer, mr_row_order *order)
{
    memset(order, 0, sizeof *order);
    order->groups = malloc((indexer->group_count + 1) * sizeof(size_t));
    order->partitions = malloc((indexer->partition_count + 1) * sizeof(size_t));
    if (!order->groups || !order->partitions)
        return MR_NO_MEMORY;
    for (size_t slot = 0; slot < indexer->group_count; slot++)
        order->groups[slot] = slot;
    for (size_t slot = 0; slot < indexer->partition_count; slot++)
        order->partitions[slot] = slot;
    qsort_r(order->groups, indexer->group_count, sizeof(size_t), mr_group_order, (void *)indexer);
    qsort_r(order->partitions, indexer->partition_count, sizeof(size_t), mr_partition_order,
            (void *)indexer);
    for (size_t at = 0; at < indexer->group_count; at++) {
        size_t rows = indexer->groups[order->groups[at]].positions.count;
        order->entry_parts += mr_parts_of(MR_ENTRY_BLOCKS, order->entries, rows);
        order->entries += rows;
    }
    for (size_t at = 0; at < indexer->partition_count; at++) {
        size_t rows = indexer->partitions[order->partitions[at]].bases.count;
        order->batch_parts += mr_parts_of(MR_BATCH_BLOCKS, order->batches, rows);
        order->batches += rows;
    }
    size_t blocks = 1 + mr_blocks_of(MR_ENTRY_BLOCKS, order->entries)
        + mr_blocks_of(MR_BATCH_BLOCKS, order->batches);
    return blocks > (size_t)1 << MR_BLOCK_BITS ? MR_TOO_LARGE : MR_PLAIN;
}

typedef struct {
    int kind;
    uint32_t crc;         /* of the file's identity, without the block's number */
    size_t first_block;
    uint8_t *blocks;
    size_t count;         /* rows so far */
    uint8_t *part;        /* where the next row of the summary goes */
} mr_row_writer;

static inline uint8_t *mr_row_at(const mr_row_writer *writer, size_t row)
{
    size_t per_block = mr_rows_per_block(writer->kind);
    return writer->blocks + row / per_block * MR_BLOCK_BYTES + MR_BLOCK_HEAD_BYTES
        + row % per_block * mr_row_bytes(writer->kind);
}

/* Rows of a key, of which `wanted` are left, that go into the block of the next row. */
static inline size_t mr_rows_in_block(const mr_row_writer *writer, size_t wanted)
{
    size_t room = mr_rows_per_block(writer->kind) - writer->count % mr_rows_per_block(writer->kind);
    return wanted < room ? wanted : room;
}

static inline uint64_t mr_place(const mr_row_writer *writer, size_t rows)
{
    size_t per_block = mr_rows_per_block(writer->kind);
    return (uint64_t)(writer->first_block + writer->count / per_block) << MR_BLOCK_AT
        | (uint64_t)(writer->count % per_block) << MR_SLOT_BITS | rows;
}

/* Add the row of the summary for the next rows of a key. */
static inline void mr_add_part(mr_row_writer *writer, uint64_t first, size_t rows, uint64_t value)
{
    mr_store_le64(writer->part, first);
    mr_store_le64(writer->part + 8, mr_place(writer, rows));
    mr_store_le64(writer->part + 16, value);
    writer->part += MR_PART_BYTES;
}

static inline int mr_pack_entries(mr_row_writer *writer, const mr_group *group, uint64_t start)
{
    uint64_t before = 0;
    for (size_t at = 0; at < group->positions.count;) {
        size_t rows = mr_rows_in_block(writer, group->positions.count - at), stop = at + rows;
        if (group->first_index + at > INT64_MAX || group->first_index > INT64_MAX)
            return MR_TOO_LARGE;
        mr_add_part(writer, group->first_index + at, rows, before);
        for (; at < stop; at++) {
            uint64_t position = group->positions.at[at], sum = group->ends.at[at] - before;
            if (position < start || position - start > UINT32_MAX || sum > UINT32_MAX)
                return MR_TOO_LARGE;
            uint8_t *row = mr_row_at(writer, writer->count++);
            mr_store_le32(row, (uint32_t)(position - start));
            mr_store_le32(row + 4, (uint32_t)sum);
        }
        before = group->ends.at[at - 1];
    }
    return MR_PLAIN;
}

/* Batches are entries of their group, whose numbers mr_pack_entries found to fit. */
static inline void mr_pack_batches(mr_row_writer *writer, const mr_partition *partition,
                                   const mr_group *group, uint64_t start)
{
    for (size_t at = 0; at < partition->bases.count;) {
        size_t rows = mr_rows_in_block(writer, partition->bases.count - at), stop = at + rows;
        mr_add_part(writer, partition->bases.at[at], rows, partition->latest.at[stop - 1]);
        for (; at < stop; at++) {
            size_t slot = partition->indexes.at[at] - group->first_index;
            uint64_t before = slot ? group->ends.at[slot - 1] : 0;
            uint8_t *row = mr_row_at(writer, writer->count++);
            mr_store_le64(row, partition->bases.at[at]);
            mr_store_le64(row + 8, partition->latest.at[at]);
            mr_store_le64(row + 16, partition->indexes.at[at]);
            mr_store_le32(row + 24, (uint32_t)(group->positions.at[slot] - start));
            mr_store_le32(row + 28, (uint32_t)(group->ends.at[slot] - before));
            mr_store_le32(row + 32, (uint32_t)partition->counts.at[at]);
        }
    }
}

static inline uint32_t mr_block_crc(uint32_t identity_crc, size_t number, const uint8_t *block)
{
    uint8_t packed[4];
    mr_store_le32(packed, (uint32_t)number);
    return mr_crc32c(mr_crc32c(identity_crc, packed, sizeof packed), block + 4, MR_BLOCK_BYTES - 4);
}

/* Complete the blocks of a kind: heads, zeros behind the rows, checksums. */
static inline void mr_close_blocks(const mr_row_writer *writer)
{
    size_t per_block = mr_rows_per_block(writer->kind);
    for (size_t number = 0; number < mr_blocks_of(writer->kind, writer->count); number++) {
        uint8_t *block = writer->blocks + number * MR_BLOCK_BYTES;
        size_t left = writer->count - number * per_block;
        size_t rows = left < per_block ? left : per_block;
        size_t used = MR_BLOCK_HEAD_BYTES + rows * mr_row_bytes(writer->kind);
        memset(block + used, 0, MR_BLOCK_BYTES - used);
        mr_store_le32(block + 4, (uint32_t)writer->kind | (uint32_t)rows << 16);
        mr_store_le32(block, mr_block_crc(writer->crc, writer->first_block + number, block));
    }
}

/* Fill the blocks of entries and then of batches; the rows of the summary for groups and for
 * partitions; and the partitions of the summary.  MR_TOO_LARGE. */
static inline int mr_rows_pack(const mr_indexer *indexer, const mr_row_order *order,
                               uint32_t identity_crc, uint64_t start, uint8_t *blocks,
                               uint8_t *entry_parts, uint8_t *partitions, uint8_t *batch_parts)
{
    size_t entry_blocks = mr_blocks_of(MR_ENTRY_BLOCKS, order->entries);
    mr_row_writer entries = {MR_ENTRY_BLOCKS, identity_crc, 1, blocks, 0, entry_parts};
    mr_row_writer batches = {MR_BATCH_BLOCKS, identity_crc, 1 + entry_blocks,
                             blocks + entry_blocks * MR_BLOCK_BYTES, 0, batch_parts};
    for (size_t at = 0; at < indexer->group_count; at++) {
        int packed = mr_pack_entries(&entries, &indexer->groups[order->groups[at]], start);
        if (packed)
            return packed;
    }
    for (size_t at = 0; at < indexer->partition_count; at++) {
        const mr_partition *known = &indexer->partitions[order->partitions[at]];
        uint8_t *before = batches.part;
        mr_pack_batches(&batches, known, &indexer->groups[known->group], start);
        mr_store_le64(partitions, known->partition);
        mr_store_le64(partitions + 8, (uint64_t)known->end_offset);
        mr_store_le32(partitions + 16, (uint32_t)((batches.part - before) / MR_PART_BYTES));
        partitions += MR_PARTITION_BYTES;
    }
    mr_close_blocks(&entries);
    mr_close_blocks(&batches);
    return MR_PLAIN;
}

/* ---- unpacking ------------------------------------------------------------------------------- */

/* The first of consecutive blocks that is damaged or not the one of its number, kind and rows;
 * -1 = none.  `rows`: of all of them. */
static inline int64_t mr_damaged_block(const uint8_t *blocks, size_t first_block, int kind,
                                       size_t rows, uint32_t identity_crc)
{
    size_t per_block = mr_rows_per_block(kind);
    for (size_t number = 0; number < mr_blocks_of(kind, rows); number++) {
        const uint8_t *block = blocks + number * MR_BLOCK_BYTES;
        size_t left = rows - number * per_block;
        size_t expected = left < per_block ? left : per_block;
        if (mr_load_le32(block + 4) != ((uint32_t)kind | (uint32_t)expected << 16)
            || mr_load_le32(block) != mr_block_crc(identity_crc, first_block + number, block))
            return (int64_t)(first_block + number);
    }
    return -1;
}

/* Consecutive blocks of one kind, and the next row of the summary. */
typedef struct {
    mr_row_writer place;    /* blocks, and the number of the next row */
    size_t rows;            /* that the blocks have room for */
    const uint8_t *part;
    uint64_t first, value;  /* of the part */
} mr_row_reader;

/* The rows of the next part, 0 = its place is not that of the next row. */
static inline size_t mr_next_part(mr_row_reader *reader)
{
    uint64_t place = mr_load_le64(reader->part + 8);
    size_t rows = place & (((uint64_t)1 << MR_SLOT_BITS) - 1);
    if (place != mr_place(&reader->place, rows) || rows > reader->rows - reader->place.count
        || rows != mr_rows_in_block(&reader->place, rows))
        return 0;
    reader->first = mr_load_le64(reader->part);
    reader->value = mr_load_le64(reader->part + 16);
    reader->part += MR_PART_BYTES;
    return rows;
}

/* Rows of `parts` parts, of which no block is read. */
static inline size_t mr_rows_of_parts(const uint8_t *parts, size_t count)
{
    size_t rows = 0;
    for (size_t at = 0; at < count; at++)
        rows += mr_load_le64(parts + at * MR_PART_BYTES + 8) & (((uint64_t)1 << MR_SLOT_BITS) - 1);
    return rows;
}

/* Columns of a group from its parts; they have room for mr_rows_of_parts. */
static inline int mr_unpack_entries(mr_row_reader *reader, size_t parts, uint64_t first_index,
                                    uint64_t start, uint8_t *positions, uint8_t *ends)
{
    uint64_t before = 0;
    for (size_t slot = 0, part = 0; part < parts; part++) {
        size_t rows = mr_next_part(reader);
        if (!rows || reader->first > INT64_MAX || reader->first != first_index + slot
            || reader->value != before)
            return MR_CONTRADICTS;
        uint32_t last = 0;
        for (size_t stop = slot + rows; slot < stop; slot++) {
            const uint8_t *row = mr_row_at(&reader->place, reader->place.count++);
            uint64_t position = mr_load_le32(row);
            uint32_t sum = mr_load_le32(row + 4);
            if (sum <= last || (position && __builtin_add_overflow(position, start, &position)))
                return MR_CONTRADICTS;
            last = sum;
            mr_store_le64(positions + slot * 8, position);
            mr_store_le64(ends + slot * 8, before + sum);
        }
        before += last;
    }
    return MR_PLAIN;
}

/* A partition of a summary, and its columns. */
typedef struct {
    uint64_t first_index, last_index; /* of its group */
    int64_t end_offset;
    uint8_t *bases, *indexes, *latest; /* with room for mr_rows_of_parts */
    mr_column gap_bases, gap_ends;
} mr_unpacked;

static inline int mr_unpack_batches(mr_row_reader *reader, size_t parts, mr_unpacked *found)
{
    int64_t end = 0, base = 0, latest = INT64_MIN;
    uint64_t last = 0;
    for (size_t slot = 0, part = 0; part < parts; part++) {
        size_t rows = mr_next_part(reader);
        if (!rows)
            return MR_CONTRADICTS;
        for (size_t begin = slot, stop = slot + rows; slot < stop; slot++) {
            const uint8_t *row = mr_row_at(&reader->place, reader->place.count++);
            int64_t before = base, previous = latest;
            uint64_t index = mr_load_le64(row + 16);
            uint32_t count = mr_load_le32(row + 32);
            base = (int64_t)mr_load_le64(row);
            latest = (int64_t)mr_load_le64(row + 8);
            if ((slot == begin && base != (int64_t)reader->first) || latest < previous || !count
                || index < found->first_index || index > found->last_index
                || (slot && (base < end || index <= last)))
                return MR_CONTRADICTS;
            if (slot && base != end
                && (mr_column_add(&found->gap_bases, (uint64_t)before)
                    || mr_column_add(&found->gap_ends, (uint64_t)end)))
                return MR_NO_MEMORY;
            last = index;
            if (__builtin_add_overflow(base, (int64_t)count, &end))
                return MR_CONTRADICTS;
            mr_store_le64(found->bases + slot * 8, (uint64_t)base);
            mr_store_le64(found->indexes + slot * 8, index);
            mr_store_le64(found->latest + slot * 8, (uint64_t)latest);
        }
        if ((int64_t)reader->value != latest)
            return MR_CONTRADICTS;
    }
    return parts && end != found->end_offset ? MR_CONTRADICTS : MR_PLAIN;
}

#endif
