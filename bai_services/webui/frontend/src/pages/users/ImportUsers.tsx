import { useState } from 'react';
import { InboxOutlined } from '@ant-design/icons';
import { Alert, Button, Drawer, Flex, Form, Input, Progress, Typography, Upload } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { takenNamesQuery, useImportUsers } from '../../data/accounts/users';
import {
  markTaken,
  newUser,
  readUsers,
  TEMPLATE,
  type Defaults,
  type ImportRow,
  type UserFile
} from './csvUsers';
import { ImportPreview } from './ImportPreview';

const TEMPLATE_URL = `data:text/csv;charset=utf-8,${encodeURIComponent(TEMPLATE)}`;
const NONE: ReadonlySet<string> = new Set();
const DEFAULTS = ['domain', 'projects', 'resource_policy', 'password'] as const;

/** Create users from a CSV file: choose, check the preview, create. */
export function ImportUsers({ onClose }: { onClose: () => void }) {
  const { t } = useTranslation();
  const [text, setText] = useState<string>();
  const [defaults, setDefaults] = useState<Defaults>({});
  const { outcomes, isPending, run, reset } = useImportUsers();
  const file = text === undefined ? undefined : read(text, defaults);
  const { data: taken = NONE } = useQuery({
    ...takenNamesQuery(namesIn(file?.rows ?? [])),
    enabled: file !== undefined
  });
  // Do not mark a row as taken because of the user that was created from it.
  const rows = (file?.rows ?? []).flatMap(row =>
    outcomes.has(row.number) ? [row] : markTaken([row], taken)
  );
  const valid = rows.filter(row => row.problems.length === 0);
  const skipped = rows.length - valid.length;
  const left = valid.filter(row => !outcomes.has(row.number) || outcomes.get(row.number));
  const isValid = file !== undefined && file.missing.length === 0 && left.length > 0;
  const choose = (chosen: File) => {
    reset();
    void chosen.text().then(setText);
    return false;
  };

  return (
    <Drawer
      open
      onClose={() => !isPending && onClose()}
      size={800}
      title={t('user-import.title')}
      footer={
        <Flex gap="small" justify="end" align="center">
          {skipped > 0 && t('user-import.skipped', { count: skipped })}
          <Button
            type="primary"
            disabled={!isValid}
            loading={isPending}
            onClick={() => void run(left.map(row => ({ number: row.number, user: newUser(row) })))}
          >
            {t('user-import.create', { count: left.length })}
          </Button>
        </Flex>
      }
    >
      <Typography.Paragraph>
        {t('user-import.help')}{' '}
        <a href={TEMPLATE_URL} download="users.csv">
          {t('user-import.template')}
        </a>
      </Typography.Paragraph>
      <Upload.Dragger
        height={120}
        accept=".csv,text/csv"
        beforeUpload={choose}
        showUploadList={false}
        disabled={isPending}
      >
        <InboxOutlined style={{ fontSize: 32 }} /> {t('user-import.choose')}
      </Upload.Dragger>
      <DefaultValues onChange={setDefaults} />
      {text !== undefined && file === undefined && (
        <Alert type="error" showIcon title={t('user-import.unreadable')} />
      )}
      {file && <FileProblems file={file} />}
      {outcomes.size > 0 && (
        <Progress
          percent={Math.round((100 * outcomes.size) / valid.length)}
          aria-label={t('user-import.progress')}
        />
      )}
      {file && <ImportPreview rows={rows} outcomes={outcomes} />}
    </Drawer>
  );
}

/** The user names and e-mail addresses of the rows without problems, in lower case. */
function namesIn(rows: readonly ImportRow[]) {
  const cells = rows.filter(row => row.problems.length === 0).map(row => row.cells);
  return {
    username: cells.map(({ username = '' }) => username.toLowerCase()),
    email: cells.map(({ email = '' }) => email.toLowerCase())
  };
}

function read(text: string, defaults: Defaults): UserFile | undefined {
  try {
    return readUsers(text, defaults);
  } catch {
    return undefined;
  }
}

function DefaultValues({ onChange }: { onChange: (defaults: Defaults) => void }) {
  const { t } = useTranslation();
  return (
    <Form<Defaults>
      layout="vertical"
      style={{ marginTop: 16 }}
      onValuesChange={(_, all) =>
        onChange(Object.fromEntries(Object.entries(all).filter(([, value]) => value)))
      }
    >
      <Typography.Text strong>{t('user-import.defaults')}</Typography.Text>
      <Flex wrap gap="small">
        {DEFAULTS.map(column => (
          <Form.Item
            key={column}
            name={column}
            label={t(`user-import.${column.replaceAll('_', '-')}`)}
          >
            {column === 'password' ? (
              <Input.Password autoComplete="new-password" />
            ) : (
              <Input autoComplete="off" />
            )}
          </Form.Item>
        ))}
      </Flex>
    </Form>
  );
}

function FileProblems({ file }: { file: UserFile }) {
  const { t } = useTranslation();
  return (
    <>
      {file.missing.length > 0 && (
        <Alert
          type="error"
          showIcon
          title={t('user-import.missing', { columns: file.missing.join(', ') })}
        />
      )}
      {file.unknown.length > 0 && (
        <Alert
          type="warning"
          showIcon
          title={t('user-import.unknown', { columns: file.unknown.join(', ') })}
        />
      )}
    </>
  );
}
